# SPDX-License-Identifier: Apache-2.0
# write_texts SOURCE DIRECTORY: a tokenizer of small letters with the token
# <picture>, texts.jsonl, whose texts have none to two of the pictures that are
# beside it, and rare.jsonl, of which one alone has a picture.
write_texts() {
    local source=$1 to=$2 i id=2 vocab='"<s>": 0, "<picture>": 1' letter
    local images=("$source"/tests/fixtures/images/{rgb.png,j420.jpg})
    local special='"single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true'
    mkdir -p "$to"
    cp "${images[@]}" "$to"
    for letter in {a..j}; do
        vocab+=", \"$letter\": $((id++))"
    done
    cat >"$to/tokenizer.json" <<JSON
{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [
{"id": 0, "content": "<s>", $special},
{"id": 1, "content": "<picture>", $special}],
"normalizer": null, "pre_tokenizer": null, "post_processor": null,
"decoder": null, "model": {"type": "BPE", "dropout": null, "unk_token": null,
"continuing_subword_prefix": null, "end_of_word_suffix": null,
"fuse_unk": false, "byte_fallback": false,
"vocab": {$vocab}, "merges": []}}
JSON
    for ((i = 0; i < 24; i++)); do
        case $((i * 7 % 5)) in
        0 | 3) echo "{\"text\": \"<picture>abc\", \"images\": [\"rgb.png\"]}" ;;
        1) echo '{"text": "abcdefghij", "images": []}' ;;
        2) echo '{"text": "a<picture>bd<picture>j",
 "images": ["j420.jpg", "rgb.png"]}' | tr -d '\n' && echo ;;
        *) echo '{"text": "jihgfedc", "images": []}' ;;
        esac
    done >"$to/texts.jsonl"
    for ((i = 0; i < 24; i++)); do
        [ $i != 9 ] || echo '{"text": "<picture>c", "images": ["rgb.png"]}'
        [ $i = 9 ] || echo '{"text": "abcdj", "images": []}'
    done >"$to/rare.jsonl"
}
