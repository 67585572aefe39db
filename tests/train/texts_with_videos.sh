# SPDX-License-Identifier: Apache-2.0
# write_videos SOURCE DIRECTORY [TOKEN...]: a tokenizer of letters, digits, the
# letters and tokens that are given and those of
# pictures and videos, and texts.jsonl, whose texts have pictures, videos, both
# and none, beside it.
write_videos() {
    local source=$1 to=$2 i id=5 letter vocab
    local special='"single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true'
    local tokens=('<s>' '<picture>' '<video>' '<|vision_start|>'
        '<|vision_end|>')
    mkdir -p "$to"
    cp "$source"/tests/fixtures/images/rgb.png \
        "$source"/tests/fixtures/videos/{clip,wide}.mov "$to"
    for i in "${!tokens[@]}"; do
        vocab+="\"${tokens[i]}\": $i, "
    done
    for letter in {a..j} k n o s t {0..9} '<' '>' '.' ' ' "${@:3}"; do
        vocab+="\"$letter\": $((id++)), "
    done
    {
        echo '{"version": "1.0", "truncation": null, "padding": null,'
        echo '"added_tokens": ['
        for i in "${!tokens[@]}"; do
            [ "$i" = 0 ] || echo ,
            echo "{\"id\": $i, \"content\": \"${tokens[i]}\", $special}"
        done
        for ((i = 3; i <= $#; i++)); do # tokens of several letters
            letter=${*:i:1}
            [ ${#letter} -lt 2 ] || echo ", {\"id\": $((id - $# + i - 1))," \
                "\"content\": \"$letter\", $special}"
        done
        echo '], "normalizer": null, "pre_tokenizer": null,
"post_processor": null, "decoder": null, "model": {"type": "BPE",
"dropout": null, "unk_token": null, "continuing_subword_prefix": null,
"end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,'
        echo "\"vocab\": {${vocab%, }}, \"merges\": []}}"
    } >"$to/tokenizer.json"
    for ((i = 0; i < 8; i++)); do
        case $((i * 7 % 6)) in
        0) echo '{"text": "<picture>abc", "images": ["rgb.png"]}' ;;
        1) echo '{"text": "ab<video>de", "video": "clip.mov"}' ;;
        2) echo '{"text": "abcdefghij"}' ;;
        3) echo '{"text": "a<video>bd<picture>j",
 "images": ["rgb.png"], "videos": ["wide.mov"]}' | tr -d '\n' && echo ;;
        4) echo '{"text": "<video>c<video>hg",
 "videos": ["clip.mov", "wide.mov"]}' | tr -d '\n' && echo ;;
        *) echo '{"text": "jihgfedc"}' ;;
        esac
    done >"$to/texts.jsonl"
}
