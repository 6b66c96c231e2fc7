// MPT: layer norms and plain MLPs without biases, and ALiBi instead of RoPE (arXiv:2108.12409).
// Blog: "Introducing MPT-7B", 2023. Reference: transformers, models/mpt.
#include <memory>

#include "models/families.h"
#include "models/fields.h"

namespace tokamak {
namespace {

// The reference uses this value, whatever the field says.
constexpr int kAlibiBiasMax = 8;

// Refuses features that the checkpoints' own code has and the reference lacks, some of which the
// reference silently ignores.
void ParseAttentionConfig(ConfigReader& attn, nn::AttentionConfig& attention,
                          nn::AttentionExtras& extras) {
  attn.ExpectOrAbsent("alibi", true);
  attn.ExpectOrAbsent("attn_type", "multihead_attention");
  attn.ExpectOrAbsent("prefix_lm", false);
  attn.ExpectOrAbsent("qk_ln", false);
  attn.ExpectOrAbsent("alibi_bias_max", kAlibiBiasMax);
  extras.clip_qkv = static_cast<float>(attn.NumberOr("clip_qkv", 0, {0, 1e30}));
  attention.scale = static_cast<float>(attn.NumberOr("softmax_scale", attention.scale));
  // Implementation, training, and several texts in one sequence.
  attn.Ignore({"attn_impl", "attn_pdrop", "attn_uses_sequence_id"});
  // transformers writes these into every configuration, also into nested ones.
  attn.Ignore({"_name_or_path", "architectures", "chunk_size_feed_forward", "dtype", "id2label",
               "is_encoder_decoder", "label2id", "model_type", "output_attentions",
               "output_hidden_states", "problem_type", "return_dict"});
}

}  // namespace

Result<DecoderConfig> ParseMpt(ConfigReader reader) {
  DecoderConfig c;
  c.names = {
      .model = "transformer", .embedding = "wte", .layers = "blocks", .final_norm = "norm_f"};
  c.vocab_size = reader.Int("vocab_size", kVocabSizes);
  c.max_positions = reader.Int("max_seq_len");
  c.norm.eps = static_cast<float>(reader.NumberOr("layer_norm_epsilon", 1e-5, {0, 1}));
  c.norm.layer_norm = true;
  c.tie_word_embeddings = reader.BoolOr("tie_word_embeddings", true);
  c.attention = ParseMultiHeadAttention(reader, "d_model", "n_heads");
  c.hidden_size = c.attention.hidden_size;
  nn::AttentionExtras extras = {.alibi_bias_max = kAlibiBiasMax,
                                .names = {.qkv = "Wqkv", .output = "out_proj"}};
  if (reader.Has("attn_config")) {
    ConfigReader attn = reader.Object("attn_config");
    ParseAttentionConfig(attn, c.attention, extras);
  }
  c.mlp = {.hidden_size = c.hidden_size,
           .intermediate_size = c.hidden_size * reader.IntOr("expansion_ratio", 4, Positive(1024)),
           .activation = Activation::kGelu};
  c.layer = [extras, mlp = c.mlp](const LayerBuilder& b) {
    return PreNorm{b.Norm("norm_1"), b.Attention("attn", extras), b.Norm("norm_2"),
                   std::make_unique<nn::PlainMlp>(b.at / "ffn", mlp)};
  };
  c.layers.assign(static_cast<size_t>(reader.Int("n_layers", Positive(10000))),
                  {.rope = DecoderLayer::kNoRope});
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
