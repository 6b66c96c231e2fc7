// BERT: an encoder, whose tokens all see each other, with post-norms and without pooling. Paper:
// arXiv:1810.04805. Reference: transformers, models/bert.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/families.h"
#include "models/fields.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "nn/sublayer.h"

namespace tokamak {
namespace {

struct Config {
  int32_t vocab_size = 0;
  int32_t max_positions = 0;
  int32_t token_types = 0;
  int32_t num_layers = 0;
  nn::NormConfig norm;
  nn::AttentionConfig attention;
  nn::MlpShape mlp;

  int32_t hidden_size() const { return attention.hidden_size; }
};

Activation ParseActivation(ConfigReader& reader) {
  const std::string name = reader.String("hidden_act");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name != "gelu") reader.Fail("hidden_act", "\"" + name + "\" is not supported");
  return Activation::kGelu;
}

Result<Config> ParseConfig(ConfigReader reader) {
  Config c;
  c.vocab_size = reader.Int("vocab_size", kVocabSizes);
  c.max_positions = reader.Int("max_position_embeddings");
  c.token_types = reader.Int("type_vocab_size", Positive(1 << 16));
  c.num_layers = reader.Int("num_hidden_layers", Positive(10000));
  c.norm = {.eps = static_cast<float>(reader.Number("layer_norm_eps", {0, 1})),
            .layer_norm = true,
            .bias = true};
  c.attention = ParseMultiHeadAttention(reader, "hidden_size", "num_attention_heads");
  c.attention.qkv_bias = c.attention.output_bias = true;
  c.mlp = {.hidden_size = c.hidden_size(),
           .intermediate_size = reader.Int("intermediate_size", kIntermediateSizes),
           .activation = ParseActivation(reader),
           .bias = true};
  reader.ExpectOrAbsent("position_embedding_type", "absolute");
  reader.ExpectOrAbsent("is_decoder", false);
  reader.ExpectOrAbsent("add_cross_attention", false);
  // For training, and for models with a head.
  reader.Ignore({"attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout",
                 "gradient_checkpointing", "tie_word_embeddings"});
  return reader.Finish(c);
}

// The rows of the positions. Texts have token type 0, whose row is added to each: f32
// [max_positions, hidden_size].
nn::OwnedTensor ReadPositions(const nn::Builder& b, const Config& c) {
  const size_t hidden = c.hidden_size();
  const auto read = [&](const char* name, int32_t rows) {
    return b.ReadValues({(b / name / "weight").Find({rows, c.hidden_size()})});
  };
  const std::vector<float> types = read("token_type_embeddings", c.token_types);
  std::vector<float> values = read("position_embeddings", c.max_positions);
  if (!b.ok()) return {};
  for (size_t i = 0; i < values.size(); ++i) values[i] += types[i % hidden];
  return b.Store(values, Shape{c.max_positions, c.hidden_size()});
}

// h = norm(h + sublayer(h)) of the residual stream h.
struct Step {
  std::unique_ptr<const nn::Sublayer> sublayer;
  nn::Norm norm;
};

class Bert final : public Model {
 public:
  Bert(const nn::Builder& b, const Config& c)
      : words_(b / "embeddings.word_embeddings", c.vocab_size, c.hidden_size(), /*tied=*/false),
        positions_(ReadPositions(b / "embeddings", c)),
        norm_(b / "embeddings.LayerNorm", c.hidden_size(), c.norm) {
    b.Needs(Capability::kConvert);
    const nn::AttentionExtras attention = {
        .causal = false,
        .names = {.q = "self.query", .k = "self.key", .v = "self.value", .output = "output.dense"}};
    const nn::PlainMlpNames mlp = {.up = "intermediate.dense", .down = "output.dense"};
    for (int32_t i = 0; i < c.num_layers && b.ok(); ++i) {
      const nn::Builder at = b / "encoder.layer" / i;
      steps_.push_back({std::make_unique<nn::Attention>(at / "attention", c.attention,
                                                        /*rope=*/nullptr, attention),
                        {at / "attention.output.LayerNorm", c.hidden_size(), c.norm}});
      steps_.push_back({std::make_unique<nn::PlainMlp>(at, c.mlp, mlp),
                        {at / "output.LayerNorm", c.hidden_size(), c.norm}});
    }
  }

  Tensor Forward(nn::Pass& pass) const override {
    const Shape tokens{pass.num_tokens(), spec().hidden_size};
    Tensor wanted = pass.arena.Allocate(DType::kF32, {pass.logit_rows.cols(), spec().hidden_size});
    const ArenaScope scope(pass.arena);
    Tensor h = pass.arena.Allocate(DType::kF32, tokens);
    Tensor delta = pass.arena.Allocate(DType::kF32, tokens);
    pass.ops.Run(GatherRows{.source = positions_.tensor, .rows = pass.positions, .out = delta},
                 pass.stream);
    words_.Forward(pass, h);
    norm_.AddForward(pass, delta, h, h);
    for (const Step& step : steps_) {
      const ArenaScope of_step(pass.arena);
      // Planning counts activations as f32, so it must find room for x in another type.
      Tensor x = pass.arena.Allocate(step.sublayer->activation(), tokens);
      if (x.dtype != h.dtype) pass.ops.Run(Convert{.x = h, .out = x}, pass.stream);
      step.sublayer->Forward(pass, {x.dtype != h.dtype ? x : h}, delta);
      step.norm.AddForward(pass, delta, h, h);
    }
    pass.ops.Run(GatherRows{.source = h, .rows = pass.logit_rows, .out = wanted}, pass.stream);
    return wanted;
  }

 private:
  nn::Embedding words_;
  nn::OwnedTensor positions_;
  nn::Norm norm_;
  std::vector<Step> steps_;
};

}  // namespace

Result<std::unique_ptr<Model>> CreateBert(ConfigReader config, nn::WeightLoad& load,
                                          const LoadOptions& options) {
  ASSIGN_OR_RETURN(const Config c, ParseConfig(std::move(config)));
  ASSIGN_OR_RETURN(load.spec.max_context, ServedContext(options, c.max_positions));
  load.spec.vocab_size = c.vocab_size;
  load.spec.hidden_size = c.hidden_size();
  load.tensors.Skip("pooler.");                  // for BERT's training objective
  load.tensors.Skip("embeddings.position_ids");  // 0, 1, 2, ...
  return std::unique_ptr<Model>(std::make_unique<Bert>(nn::Builder(load), c));
}

}  // namespace tokamak
