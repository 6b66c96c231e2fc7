#include "nn/embedding.h"

#include <utility>

namespace tokamak::nn {
namespace {

std::vector<IndexRange> Shards(const Builder& b, int64_t vocab_size) {
  const int32_t size = b.parallel().size;
  std::vector<IndexRange> shards;
  for (int32_t rank = 0; rank < size; ++rank) {
    shards.push_back(ParallelContext{size, rank}.Shard(vocab_size));
  }
  return shards;
}

WeightPtr ReadOutput(const Builder& b, int64_t vocab_size, int64_t hidden_size) {
  const IndexRange rows = b.Shard(vocab_size, "vocab_size");
  return b.PackWeight({RowRange((b / "weight").Find(Shape{vocab_size, hidden_size}), rows)},
                      WeightUse::kLinear);
}

}  // namespace

Embedding::Embedding(const Builder& b, int64_t vocab_size, int64_t hidden_size, bool tied,
                     float scale)
    : scale_(scale), vocab_size_(vocab_size), is_divided_(b.parallel().size > 1) {
  const IndexRange rows = b.Shard(vocab_size, "vocab_size");
  first_id_ = rows.begin;
  weight_ = b.PackWeight({RowRange((b / "weight").Find(Shape{vocab_size, hidden_size}), rows)},
                         tied ? WeightUse::kTied : WeightUse::kEmbedding);
  if (scale != 1) b.Needs(Capability::kEmbeddingScale);
}

void Embedding::Forward(Pass& pass, Tensor out) const {
  pass.ops.Run(Embed{.ids = pass.token_ids,
                     .table = weight_.get(),
                     .scale = scale_,
                     .first_id = first_id_,
                     .vocab_size = vocab_size_,
                     .out = out},
               pass.stream);
  // Each row comes from one rank; those of the others are zeros.
  if (is_divided_) pass.ops.Run(AllReduce{.x = out}, pass.stream);
}

OutputLayer::OutputLayer(const Builder& b, int64_t vocab_size, int64_t hidden_size)
    : linear_(ReadOutput(b, vocab_size, hidden_size)), columns_(Shards(b, vocab_size)) {}

OutputLayer::OutputLayer(const Builder& b, const Embedding& embedding)
    : linear_(embedding.weight_), columns_(Shards(b, embedding.vocab_size_)) {}

Tensor OutputLayer::Logits(Pass& pass, Tensor hidden) const {
  Tensor logits = pass.arena.Allocate(DType::kF32, {hidden.rows(), columns_.back().end});
  if (columns_.size() == 1) {
    linear_.Forward(pass, hidden, logits);
    return logits;
  }
  const ArenaScope scope(pass.arena);
  Tensor shard = pass.arena.Allocate(DType::kF32, {hidden.rows(), linear_.out_features()});
  linear_.Forward(pass, hidden, shard);
  pass.ops.Run(AllGather{.x = shard, .out = logits, .columns = columns_}, pass.stream);
  return logits;
}

}  // namespace tokamak::nn
