// MPT: layer norms and plain MLPs without biases, and ALiBi instead of RoPE (arXiv:2108.12409).
// Blog: "Introducing MPT-7B", 2023. Reference: transformers, models/mpt.
#include "models/families.h"

namespace tokamak {
namespace {

// The reference uses this value, whatever the field says.
constexpr int kAlibiBiasMax = 8;

// Refuses features that the checkpoints' own code has and the reference lacks, some of which the
// reference silently ignores.
void ParseAttentionConfig(ConfigReader& attn, nn::AttentionConfig& attention) {
  attn.ExpectOrAbsent("alibi", true);
  attn.ExpectOrAbsent("attn_type", "multihead_attention");
  attn.ExpectOrAbsent("prefix_lm", false);
  attn.ExpectOrAbsent("qk_ln", false);
  attn.ExpectOrAbsent("alibi_bias_max", kAlibiBiasMax);
  attention.clip_qkv = static_cast<float>(attn.NumberOr("clip_qkv", 0, {0, 1e30}));
  attention.scale = static_cast<float>(attn.NumberOr("softmax_scale", attention.scale));
  // Implementation, training, and several texts in one sequence.
  attn.Ignore({"attn_impl", "attn_pdrop", "attn_uses_sequence_id"});
  // transformers writes these into every configuration, also into nested ones.
  attn.Ignore({"_name_or_path", "architectures", "chunk_size_feed_forward", "dtype", "id2label",
               "is_encoder_decoder", "label2id", "model_type", "output_attentions",
               "output_hidden_states", "problem_type", "return_dict"});
}

nn::AttentionConfig ParseAttention(ConfigReader& reader) {
  nn::AttentionConfig attention = ParseMultiHeadAttention(reader, "d_model", "n_heads");
  attention.merged_qkv = true;
  attention.qkv_name = "Wqkv";
  attention.output_name = "out_proj";
  attention.alibi_bias_max = kAlibiBiasMax;
  if (reader.Has("attn_config")) {
    ConfigReader attn = reader.Object("attn_config");
    ParseAttentionConfig(attn, attention);
  }
  return attention;
}

}  // namespace

Result<DecoderConfig> ParseMpt(ConfigReader reader) {
  DecoderConfig c;
  c.architecture = "MPTForCausalLM";
  c.names = {.model = "transformer",
             .embedding = "wte",
             .layers = "blocks",
             .final_norm = "norm_f",
             .attention = "attn",
             .pre_attention_norm = "norm_1",
             .pre_feed_forward_norm = "norm_2",
             .feed_forward = "ffn"};
  c.vocab_size = static_cast<int32_t>(reader.Int("vocab_size", kVocabSizes));
  c.max_positions = static_cast<int32_t>(reader.Int("max_seq_len"));
  c.norm.eps = static_cast<float>(reader.NumberOr("layer_norm_epsilon", 1e-5, {0, 1}));
  c.norm.layer_norm = true;
  c.tie_word_embeddings = reader.BoolOr("tie_word_embeddings", true);
  DecoderLayer layer = {.attention = ParseAttention(reader), .feed_forward = {}};
  c.hidden_size = layer.attention.hidden_size;
  layer.rope = DecoderLayer::kNoRope;
  layer.feed_forward = nn::PlainMlpShape{
      .hidden_size = c.hidden_size,
      .intermediate_size = c.hidden_size * reader.IntOr("expansion_ratio", 4, Positive(1024)),
      .activation = Activation::kGelu};
  c.layers.assign(static_cast<size_t>(reader.Int("n_layers", Positive(10000))), layer);
  reader.ExpectOrAbsent("no_bias", true);
  const std::string norm = reader.StringOr("norm_type", "low_precision_layernorm");
  if (norm != "low_precision_layernorm" && norm != "layernorm") {
    reader.Fail("norm_type", "\"" + norm + "\" is not supported");
  }
  reader.ExpectOrAbsent("logit_scale", JsonValue());
  // With ALiBi there are no learned positions; the other fields are for training.
  reader.Ignore({"learned_pos_emb", "emb_pdrop", "embedding_fraction", "init_config", "init_device",
                 "verbose", "tokenizer_name"});
  return reader.Finish(c);
}

}  // namespace tokamak
