#include "models/decoder.h"

#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "nn/embedding.h"
#include "nn/norm.h"
#include "nn/sublayer.h"

namespace tokamak {
namespace {

Activation ParseActivation(ConfigReader& reader, const DecoderDefaults& defaults) {
  const char* const field = defaults.activation;
  const std::string name = defaults.absent_activation != nullptr
                               ? reader.StringOr(field, defaults.absent_activation)
                               : reader.String(field);
  if (name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name != "silu") reader.Fail(field, "\"" + name + "\" is not supported");
  return Activation::kSilu;
}

nn::AttentionConfig ParseAttention(ConfigReader& reader, const DecoderDefaults& defaults) {
  nn::AttentionConfig attention;
  attention.hidden_size = static_cast<int32_t>(reader.Int("hidden_size", kHiddenSizes));
  attention.num_heads = static_cast<int32_t>(reader.Int("num_attention_heads", kHeadCounts));
  attention.num_kv_heads =
      static_cast<int32_t>(reader.IntOr("num_key_value_heads", attention.num_heads, kHeadCounts));
  if (attention.num_heads % attention.num_kv_heads != 0) {
    reader.Fail("num_key_value_heads", "does not divide num_attention_heads");
  }
  if (!reader.Has(defaults.head_dim) && attention.hidden_size % attention.num_heads != 0) {
    reader.Fail("num_attention_heads",
                fmt::format("does not divide hidden_size, and there is no {}", defaults.head_dim));
  }
  attention.head_dim = static_cast<int32_t>(
      reader.IntOr(defaults.head_dim, attention.hidden_size / attention.num_heads, kHeadDims));
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(attention.head_dim)));
  if (defaults.attention_bias_is_fixed) {
    reader.ExpectOrAbsent("attention_bias", defaults.attention_bias);
    attention.qkv_bias = defaults.attention_bias;
  } else {
    attention.qkv_bias = reader.BoolOr("attention_bias", defaults.attention_bias);
  }
  attention.output_bias = attention.qkv_bias;
  return attention;
}

// One step of a layer: residual += after(sublayer(before(residual))). Either norm may be missing.
class Step {
 public:
  Step(std::optional<nn::Norm> before, std::unique_ptr<const nn::Sublayer> sublayer,
       std::optional<nn::Norm> after)
      : before_(std::move(before)), sublayer_(std::move(sublayer)), after_(std::move(after)) {}

  // Adds `delta` (if any) to `residual`. Returns what this step adds, in `memory`, where `delta`
  // may be, for the next step to add. All [T, hidden_size]; `residual` and `memory` f32, the others
  // in an inner type (ops/ops.h).
  Tensor Forward(nn::Pass& pass, const Tensor& delta, Tensor residual, Tensor memory) const {
    const ArenaScope scope(pass.arena);
    nn::SublayerInput in = {pass.arena.Allocate(sublayer_->activation(), residual.shape)};
    const DType copy = sublayer_->copy_type();
    if (copy != in.x.dtype) in.copy = pass.arena.Allocate(copy, residual.shape);
    if (before_) {
      before_->AddForward(pass, delta, residual, in.x, in.copy);
    } else {
      if (delta.shape.rank() != 0) {
        pass.ops.Run(AddResidual{.x = delta, .residual = residual}, pass.stream);
      }
      pass.ops.Run(Convert{.x = residual, .out = in.x}, pass.stream);
      if (copy != in.x.dtype) pass.ops.Run(Convert{.x = in.x, .out = in.copy}, pass.stream);
    }
    const Tensor out(memory.data, sublayer_->output(), memory.shape);
    const Tensor given = after_ ? pass.arena.Allocate(out.dtype, out.shape) : out;
    sublayer_->Forward(pass, in, given);
    if (after_) after_->Forward(pass, given, out);
    return out;
  }

 private:
  std::optional<nn::Norm> before_;
  std::unique_ptr<const nn::Sublayer> sublayer_;
  std::optional<nn::Norm> after_;
};

std::unique_ptr<const nn::Sublayer> MakeAttention(const nn::Builder& b, const DecoderLayer& layer,
                                                  const nn::Rope* rope) {
  if (layer.mla) return std::make_unique<nn::MlaAttention>(b, *layer.mla, rope);
  return std::make_unique<nn::Attention>(b, layer.attention, rope);
}

std::unique_ptr<const nn::Sublayer> MakeFeedForward(const nn::Builder& b,
                                                    const DecoderLayer& layer) {
  if (const auto* moe = std::get_if<nn::MoeShape>(&layer.feed_forward)) {
    return std::make_unique<nn::Moe>(b, *moe);
  }
  if (const auto* plain = std::get_if<nn::PlainMlpShape>(&layer.feed_forward)) {
    return std::make_unique<nn::PlainMlp>(b, *plain);
  }
  return std::make_unique<nn::Mlp>(b, std::get<nn::MlpShape>(layer.feed_forward));
}

class Decoder final : public Model {
 public:
  // `b` is where the layers are: c.names.model below `top`, or `top` itself.
  Decoder(const DecoderConfig& c, const nn::Builder& top, const nn::Builder& b, Task task,
          std::vector<nn::Rope> ropes)
      : hidden_size_(c.hidden_size),
        logit_softcap_(c.logit_softcap),
        ropes_(std::move(ropes)),
        embedding_(b / c.names.embedding, c.vocab_size, hidden_size_,
                   c.tie_word_embeddings && task == Task::kGenerate, c.embedding_scale) {
    if (logit_softcap_ > 0) b.Needs(Capability::kLogitSoftcap);
    for (size_t i = 0; i < c.layers.size() && b.ok(); ++i) {
      AddLayer(c, c.layers[i], b / c.names.layers / static_cast<int64_t>(i));
    }
    final_norm_ = nn::Norm(b / c.names.final_norm, c.hidden_size, c.norm);
    if (task == Task::kEmbed) return;
    lm_head_ = c.tie_word_embeddings
                   ? embedding_.OutputLayer()
                   : nn::Linear::Replicated(top / "lm_head", c.vocab_size, hidden_size_, false);
  }

  ModelSpec& mutable_spec() { return spec_; }
  const ModelSpec& spec() const override { return spec_; }

  Tensor Forward(nn::Pass& pass) const override {
    const Shape all{pass.num_tokens(), hidden_size_};
    const Shape wanted{pass.logit_rows.cols(), hidden_size_};
    const DType type = lm_head_ ? lm_head_->activation() : DType::kF32;
    Tensor hidden = pass.arena.Allocate(type, wanted);

    const ArenaScope scope(pass.arena);
    Tensor residual = pass.arena.Allocate(DType::kF32, all);
    embedding_.Forward(pass, residual);
    const Tensor memory = pass.arena.Allocate(DType::kF32, all);
    Tensor delta;  // the last step's output, not yet added; none before the first step
    for (const Step& step : steps_) delta = step.Forward(pass, delta, residual, memory);
    final_norm_.AddForward(pass, GatherWanted(pass, delta), GatherWanted(pass, residual), hidden);
    return hidden;
  }

  Tensor Logits(nn::Pass& pass, Tensor hidden) const override {
    CHECK_MSG(lm_head_, "the model was loaded to embed");
    Tensor logits = pass.arena.Allocate(DType::kF32, {hidden.rows(), lm_head_->out_features()});
    lm_head_->Forward(pass, hidden, logits);
    if (logit_softcap_ > 0) {
      pass.ops.Run(Softcap{.x = logits, .cap = logit_softcap_}, pass.stream);
    }
    return logits;
  }

  // Unavailable with a softcap. It may round different logits to one value, and of equal logits the
  // sampler chooses the lowest id, not the largest logit before the cap.
  std::optional<ArgmaxLogits> Argmax(nn::Pass& pass, Tensor hidden) const override {
    if (logit_softcap_ > 0 || !pass.ops.has_linear_argmax()) return std::nullopt;
    const ArgmaxLogits argmax = {.values = pass.arena.Allocate(DType::kF32, {hidden.rows()}),
                                 .ids = pass.arena.Allocate(DType::kI32, {hidden.rows()})};
    lm_head_->ForwardArgmax(pass, hidden, argmax);
    return argmax;
  }

 private:
  void AddLayer(const DecoderConfig& c, const DecoderLayer& layer, const nn::Builder& b) {
    const auto norm = [&](std::string_view name) -> std::optional<nn::Norm> {
      if (name.empty()) return std::nullopt;
      return nn::Norm(b / name, c.hidden_size, c.norm);
    };
    if (c.names.pre_attention_norm.empty() || c.names.pre_feed_forward_norm.empty()) {
      b.Needs({Capability::kAddResidual, Capability::kConvert});
    }
    const nn::Rope* rope = layer.rope == DecoderLayer::kNoRope ? nullptr : &ropes_[layer.rope];
    std::optional<nn::Norm> before = norm(c.names.pre_attention_norm);
    auto attention = MakeAttention(b / c.names.attention, layer, rope);
    steps_.emplace_back(std::move(before), std::move(attention), norm(c.names.post_attention_norm));
    before = norm(c.names.pre_feed_forward_norm);
    auto feed_forward = MakeFeedForward(b / c.names.feed_forward, layer);
    steps_.emplace_back(std::move(before), std::move(feed_forward),
                        norm(c.names.post_feed_forward_norm));
  }

  static Tensor GatherWanted(nn::Pass& pass, Tensor source) {
    Tensor out = pass.arena.Allocate(source.dtype, {pass.logit_rows.cols(), source.cols()});
    pass.ops.Run(GatherRows{.source = source, .rows = pass.logit_rows, .out = out}, pass.stream);
    return out;
  }

  const int64_t hidden_size_;
  const float logit_softcap_;
  const std::vector<nn::Rope> ropes_;  // layers point to them
  nn::Embedding embedding_;
  std::vector<Step> steps_;  // of all layers
  nn::Norm final_norm_;
  std::optional<nn::Linear> lm_head_;  // none if loaded to embed
  ModelSpec spec_;
};

Result<int32_t> DecoderContext(const LoadOptions& options, const DecoderConfig& c) {
  const int32_t positions = c.ropes.empty() ? c.max_positions : c.ropes.front().max_positions;
  Result<int32_t> context = ServedContext(options, positions);
  const bool dynamic = !c.ropes.empty() && c.ropes.front().scaling == nn::RopeScaling::kDynamicNtk;
  if (!context.ok() && dynamic) {
    return InvalidArgument(
        "{}: its RoPE scaling, \"dynamic\", would then rotate all positions anew for each token, "
        "which is not supported",
        context.status().message());
  }
  return context;
}

}  // namespace

Result<std::unique_ptr<Model>> MakeDecoder(DecoderConfig c, nn::WeightLoad& load,
                                           const LoadOptions& options) {
  ASSIGN_OR_RETURN(const int32_t max_context, DecoderContext(options, c));
  for (DecoderLayer& layer : c.layers) {
    if (layer.mla) layer.mla->form = options.mla_form;
  }
  const nn::Builder b(load);
  if (!c.ropes.empty()) c.ropes.front().freq_factors = nn::ReadRopeFreqFactors(b, c.ropes.front());
  for (const nn::RopeSpec& spec : c.ropes) {
    const int32_t length = nn::OriginalContext(spec, max_context);
    if (length == 0 || length == load.cache.original_context) continue;
    if (load.cache.original_context > 0) {
      return Unimplemented(
          "rope_parameters: LongRoPE with different original contexts in one model ({} and {} "
          "positions) is not supported",
          load.cache.original_context, length);
    }
    load.cache.original_context = length;
  }
  std::vector<nn::Rope> ropes;
  for (const nn::RopeSpec& spec : c.ropes) {
    ASSIGN_OR_RETURN(nn::Rope rope,
                     nn::Rope::Make(spec, max_context, load.ops, load.cache.original_context));
    ropes.push_back(std::move(rope));
  }
  // Models saved without their output layer have their tensors at the top level.
  const bool bare = options.task == Task::kEmbed && (b / c.names.embedding / "weight").Has();
  if (c.tied_unless_stored && (b / c.names.model / c.names.embedding / "weight").Has()) {
    c.tie_word_embeddings = !(b / "lm_head" / "weight").Has();
  }
  auto model =
      std::make_unique<Decoder>(c, b, bare ? b : b / c.names.model, options.task, std::move(ropes));
  if (options.task == Task::kEmbed) load.tensors.Skip("lm_head.");
  for (int32_t i = 0; i < c.mtp_layers; ++i) {
    load.tensors.Skip(fmt::format("{}.{}.{}.", c.names.model, c.names.layers,
                                  c.layers.size() + static_cast<size_t>(i)));
  }
  model->mutable_spec() = {.architecture = c.architecture,
                           .vocab_size = c.vocab_size,
                           .hidden_size = c.hidden_size,
                           .max_context = max_context,
                           .num_parameters = load.num_parameters,
                           .weight_bytes = load.weight_bytes,
                           .expert_parameters = load.expert_parameters,
                           .expert_bytes = load.expert_bytes,
                           .expert_share = load.expert_share,
                           .num_moe_layers = load.num_moe_layers,
                           .max_experts = load.max_experts,
                           .cache = load.cache};
  return std::unique_ptr<Model>(std::move(model));
}

DecoderConfig ParseDecoder(ConfigReader& reader, const DecoderDefaults& defaults) {
  DecoderConfig c;
  c.vocab_size = static_cast<int32_t>(reader.Int("vocab_size", kVocabSizes));
  const int64_t num_layers = reader.Int("num_hidden_layers", Positive(10000));
  c.norm.eps = static_cast<float>(reader.Number("rms_norm_eps", {0, 1}));
  c.tie_word_embeddings = reader.BoolOr("tie_word_embeddings", defaults.tie_word_embeddings);

  DecoderLayer layer = {.attention = ParseAttention(reader, defaults), .feed_forward = {}};
  c.hidden_size = layer.attention.hidden_size;
  layer.feed_forward =
      nn::MlpShape{.hidden_size = c.hidden_size,
                   .intermediate_size = reader.Int("intermediate_size", kIntermediateSizes),
                   .activation = ParseActivation(reader, defaults)};
  c.layers.assign(static_cast<size_t>(num_layers), layer);
  if (defaults.rope_apart) return c;
  c.ropes = {nn::ParseRope(reader, layer.attention.head_dim,
                           static_cast<int32_t>(reader.Int("max_position_embeddings")),
                           defaults.rope)};
  return c;
}

nn::AttentionConfig ParseMultiHeadAttention(ConfigReader& reader, const char* hidden_size,
                                            const char* num_heads) {
  nn::AttentionConfig attention;
  attention.hidden_size = static_cast<int32_t>(reader.Int(hidden_size, kHiddenSizes));
  attention.num_heads = static_cast<int32_t>(reader.Int(num_heads, kHeadCounts));
  attention.num_kv_heads = attention.num_heads;
  if (attention.hidden_size % attention.num_heads != 0) {
    reader.Fail(num_heads, fmt::format("does not divide {}", hidden_size));
  }
  attention.head_dim = attention.hidden_size / attention.num_heads;
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(attention.head_dim)));
  return attention;
}

}  // namespace tokamak
