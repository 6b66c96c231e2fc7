#include "models/decoder.h"

#include <fmt/core.h>

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

class Decoder final : public Model {
 public:
  // `b` is where the layers are: c.names.model below `top`, or `top` itself.
  Decoder(const DecoderConfig& c, const nn::Builder& top, const nn::Builder& b,
          const LoadOptions& options, std::vector<nn::Rope> ropes)
      : logit_softcap_(c.logit_softcap),
        deepstack_layers_(static_cast<size_t>(c.deepstack_layers)),
        rope_sections_(c.ropes.empty() ? std::vector<nn::RopeSection>()
                                       : nn::RopeSections(c.ropes.front())),
        ropes_(std::move(ropes)),
        embedding_(b / c.names.embedding, c.vocab_size, c.hidden_size,
                   c.tie_word_embeddings && options.task == Task::kGenerate, c.embedding_scale) {
    if (logit_softcap_ > 0) b.Needs(Capability::kLogitSoftcap);
    if (deepstack_layers_ > 0) b.Needs(Capability::kAddResidual);
    layers_.reserve(c.layers.size());
    for (size_t i = 0; i < c.layers.size() && b.ok(); ++i) {
      const DecoderLayer& layer = c.layers[i];
      layers_.push_back(
          c.layer({.config = c,
                   .layer = layer,
                   .at = b / c.names.layers / static_cast<int64_t>(i),
                   .rope = layer.rope == DecoderLayer::kNoRope ? nullptr : &ropes_[layer.rope],
                   .mla_form = options.mla_form}));
      if (std::holds_alternative<PostNorm>(layers_.back())) {
        b.Needs({Capability::kAddResidual, Capability::kConvert});
      }
    }
    final_norm_ = nn::Norm(b / c.names.final_norm, c.hidden_size, c.norm);
    if (options.task == Task::kEmbed) return;
    if (c.tie_word_embeddings) {
      lm_head_.emplace(top, embedding_);
    } else {
      lm_head_.emplace(top / "lm_head", c.vocab_size, c.hidden_size);
    }
  }

  Tensor Forward(nn::Pass& pass) const override {
    const DType type = lm_head_ ? lm_head_->activation() : DType::kF32;
    Tensor hidden = pass.arena.Allocate(type, {pass.logit_rows.cols(), spec().hidden_size});

    const ArenaScope scope(pass.arena);
    Residual h(pass, spec().hidden_size);
    embedding_.Forward(pass, h.first());
    if (pass.image_from.cols() > 0) {
      pass.ops.Run(CopyRows{.source = pass.image_rows.Cols(0, spec().hidden_size),
                            .from = pass.image_from,
                            .to = pass.image_to,
                            .out = h.first()},
                   pass.stream);
    }
    RopeTable token_rope;
    if (!rope_sections_.empty()) {
      token_rope = nn::TokenRope(pass, ropes_.front().table(), rope_sections_);
      if (!pass.rope_positions.empty()) pass.token_rope = &token_rope;
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
      std::visit([&](const auto& block) { block.Forward(h); }, layers_[i]);
      if (i < deepstack_layers_) AddFeatures(pass, i, h);
    }
    pass.token_rope = nullptr;
    h.Normalize(final_norm_, pass.logit_rows, hidden);
    return hidden;
  }

  Tensor Logits(nn::Pass& pass, Tensor hidden) const override {
    CHECK_MSG(lm_head_, "the model was loaded to embed");
    Tensor logits = lm_head_->Logits(pass, hidden);
    if (logit_softcap_ > 0) {
      pass.ops.Run(Softcap{.x = logits, .cap = logit_softcap_}, pass.stream);
    }
    return logits;
  }

  // Unavailable with a softcap. It may round different logits to one value, and of equal logits the
  // sampler chooses the lowest id, not the largest logit before the cap.
  std::optional<ArgmaxLogits> Argmax(nn::Pass& pass, Tensor hidden) const override {
    if (logit_softcap_ > 0 || !lm_head_->has_argmax(pass.ops)) return std::nullopt;
    const ArgmaxLogits argmax = {.values = pass.arena.Allocate(DType::kF32, {hidden.rows()}),
                                 .ids = pass.arena.Allocate(DType::kI32, {hidden.rows()})};
    lm_head_->Argmax(pass, hidden, argmax);
    return argmax;
  }

 private:
  // Adds images' features for layer i.
  void AddFeatures(const nn::Pass& pass, size_t i, Residual& h) const {
    const int64_t size = spec().hidden_size, first = (static_cast<int64_t>(i) + 1) * size;
    const bool shows = pass.image_from.cols() > 0;
    h.AddRows(shows ? pass.image_rows.Cols(first, first + size) : Tensor(), pass.image_from,
              pass.image_to, pass.token_indices);
  }

  const float logit_softcap_;
  const size_t deepstack_layers_;
  const std::vector<nn::RopeSection> rope_sections_;  // empty: positions have one dimension
  const std::vector<nn::Rope> ropes_;                 // layers point to them
  nn::Embedding embedding_;
  std::vector<Layer> layers_;
  nn::Norm final_norm_;
  std::optional<nn::OutputLayer> lm_head_;  // none if loaded to embed
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

nn::Norm LayerBuilder::Norm(std::string_view name) const {
  return nn::Norm(at / name, config.hidden_size, config.norm);
}

SublayerPtr LayerBuilder::Attention(std::string_view name,
                                    const nn::AttentionExtras& extras) const {
  nn::AttentionConfig attention = config.attention;
  attention.window = layer.window;
  return std::make_unique<nn::Attention>(at / name, attention, rope, extras);
}

SublayerPtr LayerBuilder::LatentAttention(std::string_view name, nn::MlaConfig mla) const {
  mla.form = mla_form;
  return std::make_unique<nn::MlaAttention>(at / name, mla, rope);
}

SublayerPtr LayerBuilder::FeedForward(std::string_view name) const {
  if (layer.experts) return std::make_unique<nn::Moe>(at / name, config.moe);
  return std::make_unique<nn::Mlp>(at / name, config.mlp);
}

Result<std::unique_ptr<Model>> MakeDecoder(DecoderConfig c, nn::WeightLoad& load,
                                           const LoadOptions& options) {
  ASSIGN_OR_RETURN(const int32_t max_context, DecoderContext(options, c));
  const nn::Builder b(load);
  if (!c.ropes.empty()) c.ropes.front().freq_factors = nn::ReadRopeFreqFactors(b, c.ropes.front());
  for (const nn::RopeSpec& spec : c.ropes) {
    const int32_t length = nn::OriginalContext(spec, max_context);
    if (length == 0 || length == load.spec.cache.original_context) continue;
    if (load.spec.cache.original_context > 0) {
      return Unimplemented(
          "rope_parameters: LongRoPE with different original contexts in one model ({} and {} "
          "positions) is not supported",
          load.spec.cache.original_context, length);
    }
    load.spec.cache.original_context = length;
  }
  std::vector<nn::Rope> ropes;
  for (const nn::RopeSpec& spec : c.ropes) {
    ASSIGN_OR_RETURN(nn::Rope rope,
                     nn::Rope::Make(spec, max_context, load.ops, load.spec.cache.original_context));
    ropes.push_back(std::move(rope));
  }
  // Models saved without their output layer have their tensors at the top level.
  const bool bare = options.task == Task::kEmbed && (b / c.names.embedding / "weight").Has();
  if (c.tied_unless_stored && (b / c.names.model / c.names.embedding / "weight").Has()) {
    c.tie_word_embeddings = !(b / "lm_head" / "weight").Has();
  }
  auto model =
      std::make_unique<Decoder>(c, b, bare ? b : b / c.names.model, options, std::move(ropes));
  if (options.task == Task::kEmbed) load.tensors.Skip("lm_head.");
  for (int32_t i = 0; i < c.mtp_layers; ++i) {
    load.tensors.Skip(fmt::format("{}.{}.{}.", c.names.model, c.names.layers,
                                  c.layers.size() + static_cast<size_t>(i)));
  }
  load.spec.vocab_size = c.vocab_size;
  load.spec.hidden_size = c.hidden_size;
  load.spec.max_context = max_context;
  if (!c.ropes.empty() && !c.ropes.front().sections.empty()) load.spec.cache.rope_dimensions = 3;
  return std::unique_ptr<Model>(std::move(model));
}

void AddImageEncoder(Model& model, nn::WeightLoad& load, int32_t image_token,
                     FunctionRef<std::unique_ptr<ImageEncoder>()> make) {
  // The tower's attention has a cache of its own.
  nn::CacheLayout text_cache = std::exchange(load.spec.cache, {});
  // Every rank encodes the images whole: encoders are small, and their rows are needed everywhere.
  const nn::ParallelContext ranks = std::exchange(load.parallel, {});
  const int64_t before = load.spec.weight_bytes;
  std::unique_ptr<ImageEncoder> encoder = make();
  encoder->set_cache(std::exchange(load.spec.cache, std::move(text_cache)));
  load.parallel = ranks;
  model.set_image_encoder(std::move(encoder));
  load.spec.image_token = image_token;
  load.spec.image_weight_bytes = load.spec.weight_bytes - before;
}

}  // namespace tokamak
