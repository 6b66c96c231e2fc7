#include "models/decoder.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "nn/embedding.h"
#include "nn/norm.h"

namespace tokamak {
namespace {

Activation ParseActivation(ConfigReader& reader) {
  const std::string name = reader.String("hidden_act");
  if (name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name != "silu") reader.Fail("hidden_act", "\"" + name + "\" is not supported");
  return Activation::kSilu;
}

nn::AttentionConfig ParseAttention(ConfigReader& reader) {
  nn::AttentionConfig attention;
  attention.hidden_size = static_cast<int32_t>(reader.Int("hidden_size"));
  attention.num_heads = static_cast<int32_t>(reader.Int("num_attention_heads", Positive(1 << 16)));
  attention.num_kv_heads = static_cast<int32_t>(
      reader.IntOr("num_key_value_heads", attention.num_heads, Positive(1 << 16)));
  if (attention.num_heads % attention.num_kv_heads != 0) {
    reader.Fail("num_key_value_heads", "does not divide num_attention_heads");
  }
  if (!reader.Has("head_dim") && attention.hidden_size % attention.num_heads != 0) {
    reader.Fail("num_attention_heads", "does not divide hidden_size, and there is no head_dim");
  }
  attention.head_dim = static_cast<int32_t>(
      reader.IntOr("head_dim", attention.hidden_size / attention.num_heads, Positive(1 << 16)));
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(attention.head_dim)));
  attention.qkv_bias = reader.BoolOr("attention_bias", false);
  attention.output_bias = attention.qkv_bias;
  return attention;
}

using FeedForward = std::variant<nn::Mlp, nn::Moe>;

FeedForward MakeFeedForward(const nn::Builder& b, const DecoderLayer& layer) {
  if (const auto* moe = std::get_if<nn::MoeShape>(&layer.feed_forward)) return nn::Moe(b, *moe);
  return nn::Mlp(b, std::get<nn::MlpShape>(layer.feed_forward));
}

class Layer {
 public:
  Layer(const DecoderConfig& c, const DecoderLayer& layer, const nn::Builder& b,
        const nn::Rope* rope)
      : input_norm_(b / "input_layernorm", c.hidden_size, c.rms_norm_eps),
        attention_(b / "self_attn", layer.attention, rope),
        post_norm_(b / "post_attention_layernorm", c.hidden_size, c.rms_norm_eps),
        feed_forward_(MakeFeedForward(b / "mlp", layer)) {}

  // All f32 [T, hidden_size]. residual += delta (when there is one) and the attention's output; the
  // feed-forward's goes to `out`, which may be `delta`, for the next norm to add.
  void Forward(nn::Pass& pass, const Tensor& delta, Tensor residual, Tensor out) const {
    const ArenaScope scope(pass.arena);
    Tensor x = pass.arena.Allocate(attention_.activation(), residual.shape);
    input_norm_.AddForward(pass, delta, residual, x);
    attention_.Forward(pass, x, out);

    std::visit(
        [&](const auto& feed_forward) {
          Tensor y = pass.arena.Allocate(feed_forward.activation(), residual.shape);
          post_norm_.AddForward(pass, out, residual, y);
          feed_forward.Forward(pass, y, out);
        },
        feed_forward_);
  }

 private:
  nn::RmsNorm input_norm_;
  nn::Attention attention_;
  nn::RmsNorm post_norm_;
  FeedForward feed_forward_;
};

class Decoder final : public Model {
 public:
  Decoder(const DecoderConfig& c, const nn::Builder& b, nn::Rope rope)
      : hidden_size_(c.hidden_size),
        rope_(std::move(rope)),
        embedding_(b / "model" / "embed_tokens", c.vocab_size, hidden_size_,
                   c.tie_word_embeddings) {
    layers_.reserve(c.layers.size());
    for (size_t i = 0; i < c.layers.size() && b.ok(); ++i) {
      layers_.emplace_back(c, c.layers[i], b / "model" / "layers" / static_cast<int64_t>(i),
                           &rope_);
    }
    final_norm_ = nn::RmsNorm(b / "model" / "norm", hidden_size_, c.rms_norm_eps);
    lm_head_ = c.tie_word_embeddings
                   ? embedding_.OutputLayer()
                   : nn::Linear::Replicated(b / "lm_head", c.vocab_size, hidden_size_, false);
  }

  ModelSpec& mutable_spec() { return spec_; }
  const ModelSpec& spec() const override { return spec_; }

  Tensor Forward(nn::Pass& pass) const override {
    const Shape all{pass.num_tokens(), hidden_size_};
    const Shape wanted{pass.logit_rows.cols(), hidden_size_};
    Tensor hidden = pass.arena.Allocate(lm_head_.activation(), wanted);

    const ArenaScope scope(pass.arena);
    Tensor residual = pass.arena.Allocate(DType::kF32, all);
    embedding_.Forward(pass, residual);
    Tensor branch = pass.arena.Allocate(DType::kF32, all);
    Tensor delta;  // the last branch, not yet added; none before the first layer
    for (const Layer& layer : layers_) {
      layer.Forward(pass, delta, residual, branch);
      delta = branch;
    }
    final_norm_.AddForward(pass, GatherWanted(pass, delta), GatherWanted(pass, residual), hidden);
    return hidden;
  }

  Tensor Logits(nn::Pass& pass, Tensor hidden) const override {
    Tensor logits = pass.arena.Allocate(DType::kF32, {hidden.rows(), lm_head_.out_features()});
    lm_head_.Forward(pass, hidden, logits);
    return logits;
  }

 private:
  static Tensor GatherWanted(nn::Pass& pass, Tensor source) {
    Tensor out = pass.arena.Allocate(source.dtype, {pass.logit_rows.cols(), source.cols()});
    pass.ops.Run(GatherRows{.source = source, .rows = pass.logit_rows, .out = out}, pass.stream);
    return out;
  }

  const int64_t hidden_size_;
  const nn::Rope rope_;  // layers point to it
  nn::Embedding embedding_;
  std::vector<Layer> layers_;
  nn::RmsNorm final_norm_;
  nn::Linear lm_head_;
  ModelSpec spec_;
};

}  // namespace

Result<std::unique_ptr<Model>> MakeDecoder(DecoderConfig c, nn::WeightLoad& load,
                                           const LoadOptions& options) {
  ASSIGN_OR_RETURN(const int32_t max_context, ServedContext(options, nn::MaxContext(c.rope)));
  const nn::Builder b(load);
  c.rope.divisors = nn::ReadRopeDivisors(b, c.rope);
  ASSIGN_OR_RETURN(nn::Rope rope, nn::Rope::Make(c.rope, max_context, load.ops));
  auto model = std::make_unique<Decoder>(c, b, std::move(rope));
  model->mutable_spec() = {.architecture = c.architecture,
                           .vocab_size = c.vocab_size,
                           .max_context = max_context,
                           .num_parameters = load.num_parameters,
                           .weight_bytes = load.weight_bytes,
                           .expert_bytes = load.expert_bytes,
                           .expert_share = load.expert_share,
                           .cache = load.cache};
  return std::unique_ptr<Model>(std::move(model));
}

DecoderConfig ParseDecoder(ConfigReader& reader) {
  DecoderConfig c;
  c.vocab_size = static_cast<int32_t>(reader.Int("vocab_size"));
  const int64_t num_layers = reader.Int("num_hidden_layers", Positive(10000));
  c.rms_norm_eps = static_cast<float>(reader.Number("rms_norm_eps", {0, 1}));
  c.tie_word_embeddings = reader.BoolOr("tie_word_embeddings", false);

  DecoderLayer layer = {.attention = ParseAttention(reader), .feed_forward = {}};
  c.hidden_size = layer.attention.hidden_size;
  layer.feed_forward = nn::MlpShape{.hidden_size = c.hidden_size,
                                    .intermediate_size = reader.Int("intermediate_size"),
                                    .activation = ParseActivation(reader)};
  c.layers.assign(static_cast<size_t>(num_layers), layer);
  c.rope = nn::ParseRope(reader, layer.attention.head_dim,
                         static_cast<int32_t>(reader.Int("max_position_embeddings")));
  return c;
}

}  // namespace tokamak
