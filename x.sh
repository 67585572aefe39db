cat >"$place/recipe.yaml" <<YAML
version: 1
device: cpu
model:
  image_encoder: {family: clip_vision_model, num_layers: 4, hidden_size: 12,
    ffn_hidden_size: 20, num_attention_heads: 4, image_size: 8, patch_size: 4,
    feature_layer: -2}
  image_projector: {family: mlp_projector}
  foundation: {family: llama, num_layers: 4, hidden_size: 16,
    ffn_hidden_size: 24, num_attention_heads: 4, num_query_groups: 4,
    vocab_size: 12, max_position_embeddings: 24}
data: {tokenizer: $place, image_token: <picture>, max_images: 8,
  train: [{path: $place/texts.jsonl}], seq_length: 24}
train: {global_batch_size: 12}
optimizer: {lr: 0.01, clip_grad: 1.0}
YAML
