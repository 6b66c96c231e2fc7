// Turns token ids into vectors: an embedding model, its pooling, and a KV cache for one batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/model.h"
#include "ops/ops.h"
#include "runner/kv_pool.h"
#include "runner/runner.h"
#include "tensor/arena.h"
#include "tokamak/status.h"
#include "weights/embedding_spec.h"

namespace tokamak {

struct EmbeddingShape {
  int32_t max_tokens = 512;  // in one step; at least max_length for encoders
  int32_t max_texts = 64;    // in one batch
  int32_t max_length = 0;    // tokens of one text
  int32_t block_size = 16;   // positions per block
  DType kv_dtype = DType::kF32;
  Pooling pooling = Pooling::kMean;
  bool normalize = true;
};

// The shape for the runner's cache, plans and passes.
RunnerShape ToRunnerShape(const EmbeddingShape& shape);

// Bytes of device memory besides the weights.
struct EmbeddingMemory {
  int64_t arena_bytes = 0;    // activations of one step
  int64_t cache_bytes = 0;    // keys and values of one batch; pages without texts stay untouched
  int64_t staging_bytes = 0;  // a packed step and its block tables
  int32_t num_blocks = 0;     // in all cache groups
};
// Runs the model on a backend that only counts.
Result<EmbeddingMemory> ProfileEmbedding(const Model& model, const EmbeddingShape& shape);

// Owned by one thread. A text's vector has the same bits in every batch.
class EmbeddingRunner {
 public:
  using Text = std::span<const int32_t>;  // token ids in [0, vocab_size), at least one

  // `model` must have been loaded with `ops`, to embed. kInvalidArgument if an encoder's longest
  // text does not fit into a step; kResourceExhausted if memory runs out.
  static Result<std::unique_ptr<EmbeddingRunner>> Create(std::unique_ptr<Ops> ops,
                                                         std::unique_ptr<const Model> model,
                                                         const EmbeddingShape& shape);
  ~EmbeddingRunner();

  const EmbeddingShape& shape() const { return shape_; }
  int64_t bytes() const { return bytes_; }  // memory taken, without the weights
  int32_t dimensions() const { return model_->spec().hidden_size; }

  // Returns a vector of dimensions() values per text. Takes at most max_texts texts of at most
  // max_tokens tokens together, or a single text of up to max_length tokens, which it runs in
  // several steps. Values are not finite if the model's activations are not. Errors are the
  // device's.
  Result<std::vector<std::vector<float>>> Run(std::span<const Text> texts);

 private:
  // Tokens [begin, end) of each text; those before are in the cache.
  struct Chunk {
    int32_t begin = 0;
    int32_t end = 0;
  };
  // Byte offsets of a step's parts on the device.
  struct Layout {
    int64_t token_ids = 0, positions = 0, rows = 0, query_start_loc = 0, seq_lens = 0;
    int64_t table_rows = 0, slot_mapping = 0, block_tables = 0, bytes = 0;
  };

  EmbeddingRunner(std::unique_ptr<Ops> ops, std::unique_ptr<const Model> model,
                  const EmbeddingShape& shape, KvPool pool);
  Status Init(const EmbeddingMemory& memory);
  int32_t max_blocks() const;  // per text
  void AssignBlocks(std::span<const Text> texts);
  // Packs a step with one chunk per text and uploads it.
  void Pack(std::span<const Text> texts, Chunk chunk);
  nn::Pass MakePass();
  Status Step(std::span<const Text> texts, Chunk chunk, std::vector<std::vector<double>>& sums);
  std::vector<float> Finish(const std::vector<double>& sum, size_t num_tokens) const;

  const std::unique_ptr<Ops> ops_;
  const std::unique_ptr<const Model> model_;
  const EmbeddingShape shape_;
  const bool causal_;
  KvPool pool_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Arena> arena_;
  std::vector<std::unique_ptr<AttentionPlan>> plans_;  // per cache group
  std::vector<nn::AttentionMetadata> groups_;
  Buffer device_;   // a packed step
  Buffer staging_;  // the same in host memory
  int64_t bytes_ = 0;
  Layout layout_;
  // The current step.
  std::vector<int32_t> first_block_;  // [texts], relative to the group's first block in the pool
  std::vector<int32_t> token_ids_, positions_, rows_, query_start_loc_, seq_lens_, table_rows_;
  // [rows]: the text that the hidden state belongs to.
  std::vector<int32_t> row_texts_;
  std::vector<std::vector<int64_t>> slot_mapping_;  // [groups][tokens]
  std::vector<std::vector<int32_t>> tables_;        // [groups][texts · max_blocks]
  std::vector<float> hidden_;                       // [rows · dimensions]
};

}  // namespace tokamak
