#include "models/decoder.h"

#include <fmt/core.h>

#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "nn/embedding.h"
#include "nn/norm.h"

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

using AnyAttention = std::variant<nn::Attention, nn::MlaAttention>;

AnyAttention MakeAttention(const nn::Builder& b, const DecoderLayer& layer, const nn::Rope* rope) {
  if (layer.mla) return nn::MlaAttention(b, *layer.mla, rope);
  return nn::Attention(b, layer.attention, rope);
}

using FeedForward = std::variant<nn::Mlp, nn::Moe, nn::PlainMlp>;

FeedForward MakeFeedForward(const nn::Builder& b, const DecoderLayer& layer) {
  if (const auto* moe = std::get_if<nn::MoeShape>(&layer.feed_forward)) return nn::Moe(b, *moe);
  if (const auto* plain = std::get_if<nn::PlainMlpShape>(&layer.feed_forward)) {
    return nn::PlainMlp(b, *plain);
  }
  return nn::Mlp(b, std::get<nn::MlpShape>(layer.feed_forward));
}

class Norm {
 public:
  Norm() = default;
  Norm(const nn::Builder& b, const DecoderConfig& c)
      : norm_(c.layer_norms ? Any(nn::LayerNorm(b, c.hidden_size, c.rms_norm_eps, false))
                            : Any(nn::RmsNorm(b, c.hidden_size, c.rms_norm_eps, c.norm_offset))) {}

  // Same as for the norms of nn/norm.h.
  void AddForward(nn::Pass& pass, const Tensor& delta, Tensor residual, Tensor out,
                  Tensor copy = {}) const {
    std::visit([&](const auto& norm) { norm.AddForward(pass, delta, residual, out, copy); }, norm_);
  }
  void Forward(nn::Pass& pass, Tensor x, Tensor out) const { AddForward(pass, Tensor(), x, out); }

 private:
  using Any = std::variant<nn::RmsNorm, nn::LayerNorm>;
  Any norm_;
};

std::optional<Norm> MakeNorm(const nn::Builder& b, std::string_view name, const DecoderConfig& c) {
  if (name.empty()) return std::nullopt;
  return Norm(b / name, c);
}

class Layer {
 public:
  Layer(const DecoderConfig& c, const DecoderLayer& layer, const nn::Builder& b,
        const nn::Rope* rope)
      : pre_attention_norm_(MakeNorm(b, c.names.pre_attention_norm, c)),
        attention_(MakeAttention(b / c.names.attention, layer, rope)),
        post_attention_norm_(MakeNorm(b, c.names.post_attention_norm, c)),
        pre_feed_forward_norm_(MakeNorm(b, c.names.pre_feed_forward_norm, c)),
        feed_forward_(MakeFeedForward(b / c.names.feed_forward, layer)),
        post_feed_forward_norm_(MakeNorm(b, c.names.post_feed_forward_norm, c)) {
    if (!pre_attention_norm_ || !pre_feed_forward_norm_) {
      b.Needs({Capability::kAddResidual, Capability::kConvert});
    }
  }

  // Adds `delta` (if any) and the attention's output to `residual`. Returns the feed-forward's
  // output in `memory`, where `delta` may be, for the next layer to add. All [T, hidden_size];
  // `residual` and `memory` f32, the others in an inner type (ops/ops.h).
  Tensor Forward(nn::Pass& pass, const Tensor& delta, Tensor residual, Tensor memory) const {
    const Tensor attended = std::visit(
        [&](const auto& attention) {
          return RunBranch(pass, pre_attention_norm_, attention, post_attention_norm_, delta,
                           residual, memory);
        },
        attention_);
    return std::visit(
        [&](const auto& feed_forward) {
          return RunBranch(pass, pre_feed_forward_norm_, feed_forward, post_feed_forward_norm_,
                           attended, residual, memory);
        },
        feed_forward_);
  }

 private:
  // residual += delta. Returns post_norm(branch(pre_norm(residual))), in `memory`.
  template <typename Branch>
  static Tensor RunBranch(nn::Pass& pass, const std::optional<Norm>& pre_norm, const Branch& branch,
                          const std::optional<Norm>& post_norm, const Tensor& delta,
                          Tensor residual, Tensor memory) {
    const ArenaScope scope(pass.arena);
    Tensor x = pass.arena.Allocate(branch.activation(), residual.shape);
    Tensor rounded;  // x for experts, if they want another type
    if constexpr (std::is_same_v<Branch, nn::Moe>) {
      const DType type = branch.expert_activation();
      if (type != x.dtype) rounded = pass.arena.Allocate(type, residual.shape);
    }
    if (pre_norm) {
      pre_norm->AddForward(pass, delta, residual, x, rounded);
    } else {
      if (delta.shape.rank() != 0) {
        pass.ops.Run(AddResidual{.x = delta, .residual = residual}, pass.stream);
      }
      pass.ops.Run(Convert{.x = residual, .out = x}, pass.stream);
      if (rounded.shape.rank() != 0) {
        pass.ops.Run(Convert{.x = x, .out = rounded}, pass.stream);
      }
    }
    const auto run = [&](Tensor to) {
      if constexpr (std::is_same_v<Branch, nn::Moe>) {
        branch.Forward(pass, x, rounded.shape.rank() != 0 ? rounded : x, to);
      } else {
        branch.Forward(pass, x, to);
      }
    };
    const Tensor out(memory.data, branch.output(), memory.shape);
    if (!post_norm) {
      run(out);
      return out;
    }
    Tensor given = pass.arena.Allocate(branch.output(), out.shape);
    run(given);
    post_norm->Forward(pass, given, out);
    return out;
  }

  std::optional<Norm> pre_attention_norm_;
  AnyAttention attention_;
  std::optional<Norm> post_attention_norm_;
  std::optional<Norm> pre_feed_forward_norm_;
  FeedForward feed_forward_;
  std::optional<Norm> post_feed_forward_norm_;
};

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
    layers_.reserve(c.layers.size());
    for (size_t i = 0; i < c.layers.size() && b.ok(); ++i) {
      const int rope = c.layers[i].rope;
      layers_.emplace_back(
          c, c.layers[i], b / c.names.layers / static_cast<int64_t>(i),
          rope == DecoderLayer::kNoRope ? nullptr : &ropes_[static_cast<size_t>(rope)]);
    }
    final_norm_ = Norm(b / c.names.final_norm, c);
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
    Tensor delta;  // the last branch's output, not yet added; none before the first layer
    for (const Layer& layer : layers_) delta = layer.Forward(pass, delta, residual, memory);
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
  static Tensor GatherWanted(nn::Pass& pass, Tensor source) {
    Tensor out = pass.arena.Allocate(source.dtype, {pass.logit_rows.cols(), source.cols()});
    pass.ops.Run(GatherRows{.source = source, .rows = pass.logit_rows, .out = out}, pass.stream);
    return out;
  }

  const int64_t hidden_size_;
  const float logit_softcap_;
  const std::vector<nn::Rope> ropes_;  // layers point to them
  nn::Embedding embedding_;
  std::vector<Layer> layers_;
  Norm final_norm_;
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
  c.rms_norm_eps = static_cast<float>(reader.Number("rms_norm_eps", {0, 1}));
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
