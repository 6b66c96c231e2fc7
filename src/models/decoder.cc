#include "models/decoder.h"

#include <fmt/core.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "models/stages.h"
#include "nn/embedding.h"
#include "nn/norm.h"
#include "nn/sublayer.h"
#include "ops/count/count_ops.h"

namespace tokamak {
namespace {

// Builds the parts of a decoder from their weights.
class Parts {
 public:
  // `bare`: the layers are at the top of the checkpoint instead of below config.names.model.
  Parts(const DecoderConfig& config, const nn::Builder& top, const LoadOptions& options, bool bare)
      : config_(config), options_(options), top_(top), at_(bare ? top : top / config.names.model) {}

  const DecoderConfig& config() const { return config_; }
  const nn::Builder& builder() const { return at_; }
  bool generates() const { return options_.task == Task::kGenerate; }
  bool tied() const { return generates() && config_.tie_word_embeddings; }

  nn::Embedding Embedding() const {
    return nn::Embedding(at_ / config_.names.embedding, config_.vocab_size, config_.hidden_size,
                         tied(), config_.embedding_scale);
  }
  tokamak::Layer Layer(size_t index, const std::vector<nn::Rope>& ropes) const {
    const DecoderLayer& layer = config_.layers[index];
    return config_.layer(
        {.config = config_,
         .layer = layer,
         .at = at_ / config_.names.layers / static_cast<int64_t>(index),
         .rope = layer.rope == DecoderLayer::kNoRope ? nullptr : &ropes[layer.rope],
         .mla_form = options_.mla_form});
  }
  nn::Norm FinalNorm() const {
    return nn::Norm(at_ / config_.names.final_norm, config_.hidden_size, config_.norm);
  }
  // `embedding`: the one that it may be tied to.
  nn::OutputLayer Output(const nn::Embedding& embedding) const {
    if (tied()) return nn::OutputLayer(top_, embedding);
    return nn::OutputLayer(top_ / "lm_head", config_.vocab_size, config_.hidden_size);
  }

 private:
  const DecoderConfig& config_;
  const LoadOptions& options_;
  const nn::Builder top_;
  const nn::Builder at_;  // where the layers are
};

class Decoder final : public Model {
 public:
  Decoder(const Parts& parts, const StageSpec& stage, std::vector<nn::Rope> ropes)
      : logit_softcap_(parts.config().logit_softcap),
        deepstack_layers_(static_cast<size_t>(parts.config().deepstack_layers)),
        rope_sections_(parts.config().ropes.empty()
                           ? std::vector<nn::RopeSection>()
                           : nn::RopeSections(parts.config().ropes.front())),
        ropes_(std::move(ropes)) {
    const nn::Builder& b = parts.builder();
    if (logit_softcap_ > 0) b.Needs(Capability::kLogitSoftcap);
    if (deepstack_layers_ > 0 || !stage.last()) b.Needs(Capability::kAddResidual);
    if (stage.first() || (stage.last() && parts.tied())) embedding_ = parts.Embedding();
    layers_.reserve(static_cast<size_t>(stage.end_layer - stage.first_layer));
    for (int32_t i = stage.first_layer; i < stage.end_layer && b.ok(); ++i) {
      layers_.push_back(parts.Layer(static_cast<size_t>(i), ropes_));
      if (std::holds_alternative<PostNorm>(layers_.back())) {
        b.Needs({Capability::kAddResidual, Capability::kConvert});
      }
    }
    if (!stage.last()) return;
    final_norm_ = parts.FinalNorm();
    if (parts.generates()) lm_head_.emplace(parts.Output(embedding_));
  }

  Tensor Forward(nn::Pass& pass) const override {
    if (!spec().stage.last()) {
      const Tensor hidden = Begin(pass);
      const ArenaScope scope(pass.arena);
      Residual h(pass, hidden);
      RunLayers(pass, h);
      h.Finish();
      return hidden;
    }
    const DType type = lm_head_ ? lm_head_->activation() : DType::kF32;
    Tensor hidden = pass.arena.Allocate(type, {pass.logit_rows.cols(), spec().hidden_size});
    const ArenaScope scope(pass.arena);
    Residual h(pass, Begin(pass));
    RunLayers(pass, h);
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
  // The residual stream before the first layer: the embeddings and images' rows, or what the stage
  // before has computed.
  Tensor Begin(nn::Pass& pass) const {
    if (!spec().stage.first()) return pass.hidden;
    const Tensor h = pass.arena.Allocate(DType::kF32, {pass.num_tokens(), spec().hidden_size});
    embedding_.Forward(pass, h);
    if (pass.image_from.cols() > 0) {
      pass.ops.Run(CopyRows{.source = pass.image_rows.Cols(0, spec().hidden_size),
                            .from = pass.image_from,
                            .to = pass.image_to,
                            .out = h},
                   pass.stream);
    }
    return h;
  }
  void RunLayers(nn::Pass& pass, Residual& h) const {
    RopeTable token_rope;
    if (!rope_sections_.empty()) {
      token_rope = nn::TokenRope(pass, ropes_.front().table(), rope_sections_);
      if (!pass.rope_positions.empty()) pass.token_rope = &token_rope;
    }
    // All that add features are on the first stage.
    const size_t deepstack_layers = spec().stage.first() ? deepstack_layers_ : 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      std::visit([&](const auto& block) { block.Forward(h); }, layers_[i]);
      if (i < deepstack_layers) AddFeatures(pass, i, h);
    }
    pass.token_rope = nullptr;
  }
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
  nn::Embedding embedding_;                           // on the first stage
  std::vector<Layer> layers_;
  nn::Norm final_norm_;                     // on the last stage
  std::optional<nn::OutputLayer> lm_head_;  // the same; none if loaded to embed
};

// All parts of a model, found by building them on a backend that only counts. Their tensors are
// then marked as used, so that what a stage leaves to others is not left over.
struct Survey {
  LayerCosts costs;                        // bytes as stored
  std::vector<int32_t> moe_layers_before;  // each layer
  ModelSpec spec;
  std::vector<nn::KvLayerSpec> group_shapes;
};

Result<Survey> SurveyParts(const DecoderConfig& c, nn::WeightLoad& load, const LoadOptions& options,
                           bool bare, const std::vector<nn::Rope>& ropes) {
  const std::unique_ptr<CountOps> count = MakeCountOps();
  nn::WeightLoad counting = {.tensors = load.tensors,
                             .ops = count.get(),
                             .parallel = load.parallel,
                             .progress = {},
                             .status = {},
                             .spec = {}};
  const Parts parts(c, nn::Builder(counting), options, bare);
  const auto take_bytes = [&] { return std::exchange(counting.bytes_found, 0); };
  Survey survey;
  const nn::Embedding embedding = parts.Embedding();
  const int64_t embedding_bytes = take_bytes();
  for (size_t i = 0; i < c.layers.size(); ++i) {
    survey.moe_layers_before.push_back(counting.spec.num_moe_layers);
    (void)parts.Layer(i, ropes);
    survey.costs.layers.push_back(take_bytes());
  }
  survey.moe_layers_before.push_back(counting.spec.num_moe_layers);
  (void)parts.FinalNorm();
  if (parts.generates()) {
    (void)parts.Output(embedding);
    survey.costs.output = parts.tied() ? embedding_bytes : take_bytes();
  }
  RETURN_IF_ERROR(counting.status);
  survey.costs.least_first = std::max(1, c.deepstack_layers);
  survey.spec = std::move(counting.spec);
  survey.group_shapes = std::move(counting.group_shapes);
  return survey;
}

Result<std::unique_ptr<Model>> MakeStage(const Parts& parts, const Survey& survey,
                                         nn::WeightLoad& load, std::vector<nn::Rope> ropes) {
  ASSIGN_OR_RETURN(const std::vector<IndexRange> stages, DivideLayers(survey.costs, load.stages));
  const IndexRange layers = stages[static_cast<size_t>(load.stage)];
  const auto moe_layers_before = [&](int64_t layer) {
    return survey.moe_layers_before[static_cast<size_t>(layer)];
  };
  const StageSpec stage = {.index = load.stage,
                           .count = load.stages,
                           .first_layer = static_cast<int32_t>(layers.begin),
                           .end_layer = static_cast<int32_t>(layers.end),
                           .first_moe_layer = moe_layers_before(layers.begin),
                           .end_moe_layer = moe_layers_before(layers.end)};
  ModelSpec& spec = load.spec;
  // Blocks and the loads of experts are numbered through all stages.
  spec.cache.groups = survey.spec.cache.groups;
  spec.cache.other_stages_keep_states = survey.spec.cache.keeps_states();
  load.group_shapes = survey.group_shapes;
  spec.num_moe_layers = stage.first_moe_layer;
  const int64_t before = spec.num_parameters;
  auto model = std::make_unique<Decoder>(parts, stage, std::move(ropes));
  spec.stage = stage;
  spec.num_parameters = before + survey.spec.num_parameters;
  spec.expert_parameters = survey.spec.expert_parameters;
  spec.expert_share = survey.spec.expert_share;
  spec.num_moe_layers = survey.spec.num_moe_layers;
  spec.max_experts = survey.spec.max_experts;
  return std::unique_ptr<Model>(std::move(model));
}

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
    ASSIGN_OR_RETURN(nn::Rope rope, nn::Rope::Make(spec, max_context, *load.ops,
                                                   load.spec.cache.original_context));
    ropes.push_back(std::move(rope));
  }
  // Models saved without their output layer have their tensors at the top level.
  const bool bare = options.task == Task::kEmbed && (b / c.names.embedding / "weight").Has();
  if (c.tied_unless_stored && (b / c.names.model / c.names.embedding / "weight").Has()) {
    c.tie_word_embeddings = !(b / "lm_head" / "weight").Has();
  }
  const Parts parts(c, b, options, bare);
  std::unique_ptr<Model> model;
  if (load.stages > 1) {
    ASSIGN_OR_RETURN(const Survey survey, SurveyParts(c, load, options, bare, ropes));
    ASSIGN_OR_RETURN(model, MakeStage(parts, survey, load, std::move(ropes)));
  } else {
    const StageSpec whole = {.end_layer = static_cast<int32_t>(c.layers.size())};
    model = std::make_unique<Decoder>(parts, whole, std::move(ropes));
    load.spec.stage = whole;
    load.spec.stage.end_moe_layer = load.spec.num_moe_layers;
  }
  if (options.task == Task::kEmbed) load.tensors.Skip("lm_head.");
  for (int32_t i = 0; i < c.mtp_layers; ++i) {
    load.tensors.Skip(fmt::format("{}.{}.{}.", c.names.model, c.names.layers,
                                  c.layers.size() + static_cast<size_t>(i)));
  }
  load.spec.vocab_size = c.vocab_size;
  load.spec.hidden_size = c.hidden_size;
  load.spec.max_context = max_context;
  if (!c.ropes.empty() && !c.ropes.front().sections.empty()) load.spec.cache.rope_dimensions = 3;
  return model;
}

void AddImageEncoder(Model& model, nn::WeightLoad& load, int32_t image_token,
                     FunctionRef<std::unique_ptr<ImageEncoder>()> make) {
  // The tower's attention has a cache of its own.
  nn::CacheLayout text_cache = std::exchange(load.spec.cache, {});
  std::vector<nn::KvLayerSpec> text_shapes = std::exchange(load.group_shapes, {});
  // Every rank encodes the images whole: encoders are small, and their rows are needed everywhere.
  const nn::ParallelContext ranks = std::exchange(load.parallel, {});
  const int64_t before = load.spec.weight_bytes;
  // Later stages only need to know what it takes.
  const std::unique_ptr<CountOps> count = load.stage > 0 ? MakeCountOps() : nullptr;
  Ops* const ops = std::exchange(load.ops, count ? count.get() : load.ops);
  std::unique_ptr<ImageEncoder> encoder = make();
  load.ops = ops;
  if (count) load.spec.weight_bytes = before;
  encoder->set_cache(std::exchange(load.spec.cache, std::move(text_cache)));
  load.group_shapes = std::move(text_shapes);
  load.parallel = ranks;
  model.set_image_encoder(std::move(encoder));
  load.spec.image_token = image_token;
  load.spec.image_weight_bytes = load.spec.weight_bytes - before;
}

}  // namespace tokamak
