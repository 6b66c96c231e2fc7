// BERT: an encoder, whose tokens all see each other, with post-norms and without pooling. Paper:
// arXiv:1810.04805. Reference: transformers, models/bert.
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "models/families.h"
#include "models/fields.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace tokamak {
namespace {

struct Config {
  int32_t vocab_size = 0;
  int32_t max_positions = 0;
  int32_t token_types = 0;
  int64_t num_layers = 0;
  int64_t intermediate_size = 0;
  Activation activation = Activation::kGelu;
  nn::NormConfig norm;
  nn::AttentionConfig attention;

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
  c.intermediate_size = reader.Int("intermediate_size", kIntermediateSizes);
  c.activation = ParseActivation(reader);
  c.norm = {.eps = static_cast<float>(reader.Number("layer_norm_eps", {0, 1})),
            .layer_norm = true,
            .bias = true};
  nn::AttentionConfig& attention = c.attention;
  attention = ParseMultiHeadAttention(reader, "hidden_size", "num_attention_heads");
  attention.qkv_bias = true;
  attention.output_bias = true;
  reader.ExpectOrAbsent("position_embedding_type", "absolute");
  reader.ExpectOrAbsent("is_decoder", false);
  reader.ExpectOrAbsent("add_cross_attention", false);
  // For training, and for models with a head.
  reader.Ignore({"attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout",
                 "gradient_checkpointing", "tie_word_embeddings"});
  return reader.Finish(c);
}

// The first layer's input: norm(word + position + token type). A single text has token type 0,
// whose row is added to the positions' when loading.
class Embeddings {
 public:
  Embeddings() = default;
  Embeddings(const nn::Builder& b, const Config& c)
      : words_(b / "word_embeddings", c.vocab_size, c.hidden_size(), /*tied=*/false),
        positions_(ReadPositions(b, c)),
        norm_(b / "LayerNorm", c.hidden_size(), c.norm) {}

  // out: f32 [T, hidden_size].
  void Forward(nn::Pass& pass, Tensor out) const {
    const ArenaScope scope(pass.arena);
    Tensor positions = pass.arena.Allocate(DType::kF32, out.shape);
    pass.ops.Run(GatherRows{.source = positions_.tensor, .rows = pass.positions, .out = positions},
                 pass.stream);
    words_.Forward(pass, out);
    norm_.AddForward(pass, positions, out, out);
  }

 private:
  static nn::OwnedTensor ReadPositions(const nn::Builder& b, const Config& c) {
    const int64_t hidden = c.hidden_size();
    nn::SourcePtr types = (b / "token_type_embeddings" / "weight").Find({c.token_types, hidden});
    nn::SourcePtr stored = (b / "position_embeddings" / "weight").Find({c.max_positions, hidden});
    if (!b.ok()) return {};
    const std::vector<float> type = b.ReadValues({types});
    std::vector<float> values = b.ReadValues({stored});
    if (!b.ok()) return {};
    for (size_t i = 0; i < values.size(); ++i) values[i] += type[i % static_cast<size_t>(hidden)];
    return b.Store(values, Shape{c.max_positions, hidden});
  }

  nn::Embedding words_;
  nn::OwnedTensor positions_;  // f32 [max_positions, hidden_size], plus the row of token type 0
  nn::Norm norm_;
};

class Layer {
 public:
  Layer(const nn::Builder& b, const Config& c)
      : activation_(c.activation),
        attention_(b / "attention", c.attention, /*rope=*/nullptr,
                   {.causal = false,
                    .names = {.q = "self.query",
                              .k = "self.key",
                              .v = "self.value",
                              .output = "output.dense"}}),
        attention_norm_(b / "attention" / "output" / "LayerNorm", c.hidden_size(), c.norm),
        up_(nn::Linear::Replicated(b / "intermediate" / "dense", c.intermediate_size,
                                   c.hidden_size(), /*bias=*/true)),
        down_(nn::Linear::Replicated(b / "output" / "dense", c.hidden_size(), c.intermediate_size,
                                     /*bias=*/true)),
        output_norm_(b / "output" / "LayerNorm", c.hidden_size(), c.norm) {
    b.Needs({Capability::kActivate, Capability::kConvert});
    b.Needs(NeedsOf(c.activation));
  }

  // hidden: f32 [T, hidden_size], in/out.
  void Forward(nn::Pass& pass, Tensor hidden) const {
    const ArenaScope scope(pass.arena);
    Tensor branch = pass.arena.Allocate(DType::kF32, hidden.shape);
    attention_.Forward(pass, {In(pass, hidden, attention_.activation())}, branch);
    attention_norm_.AddForward(pass, branch, hidden, hidden);

    Tensor inner = pass.arena.Allocate(DType::kF32, {hidden.rows(), up_.out_features()});
    up_.Forward(pass, In(pass, hidden, up_.activation()), inner);
    Tensor activated = pass.arena.Allocate(down_.activation(), inner.shape);
    pass.ops.Run(Activate{.x = inner, .activation = activation_, .out = activated}, pass.stream);
    down_.Forward(pass, activated, branch);
    output_norm_.AddForward(pass, branch, hidden, hidden);
  }

 private:
  // Allocates x even for f32, where it returns `hidden`: planning counts activations as f32, and
  // must also find the room that x takes in another type.
  static Tensor In(nn::Pass& pass, Tensor hidden, DType type) {
    Tensor x = pass.arena.Allocate(type, hidden.shape);
    if (type == DType::kF32) return hidden;
    pass.ops.Run(Convert{.x = hidden, .out = x}, pass.stream);
    return x;
  }

  Activation activation_;
  nn::Attention attention_;
  nn::Norm attention_norm_;
  nn::Linear up_;
  nn::Linear down_;
  nn::Norm output_norm_;
};

class Bert final : public Model {
 public:
  Bert(const Config& c, const nn::Builder& b)
      : hidden_size_(c.hidden_size()), embeddings_(b / "embeddings", c) {
    layers_.reserve(static_cast<size_t>(c.num_layers));
    for (int64_t i = 0; i < c.num_layers && b.ok(); ++i) {
      layers_.emplace_back(b / "encoder" / "layer" / i, c);
    }
  }

  Tensor Forward(nn::Pass& pass) const override {
    Tensor wanted = pass.arena.Allocate(DType::kF32, {pass.logit_rows.cols(), hidden_size_});
    const ArenaScope scope(pass.arena);
    Tensor hidden = pass.arena.Allocate(DType::kF32, {pass.num_tokens(), hidden_size_});
    embeddings_.Forward(pass, hidden);
    for (const Layer& layer : layers_) layer.Forward(pass, hidden);
    pass.ops.Run(GatherRows{.source = hidden, .rows = pass.logit_rows, .out = wanted}, pass.stream);
    return wanted;
  }

  Tensor Logits(nn::Pass&, Tensor) const override {
    CHECK_MSG(false, "an encoder has no logits");
    return {};
  }

 private:
  const int64_t hidden_size_;
  Embeddings embeddings_;
  std::vector<Layer> layers_;
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
  return std::unique_ptr<Model>(std::make_unique<Bert>(c, nn::Builder(load)));
}

}  // namespace tokamak
