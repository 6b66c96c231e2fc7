// Runs a model's image encoder over the images of a step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/image_encoder.h"
#include "ops/ops.h"
#include "runner/kv_pool.h"
#include "tensor/arena.h"
#include "tokamak/status.h"

namespace tokamak {

struct ImageRunnerShape {
  int32_t max_tokens = 0;     // of the tower in one pass; at least the longest sequence
  int32_t max_sequences = 0;  // in one pass
  int32_t block_size = 16;    // positions per block
  DType kv_dtype = DType::kF32;
};

// The type of the tower's keys and values where those of texts have `text_dtype`: the same, or BF16
// instead of a type of less precision, which would save no memory that counts.
DType ImageKvDtype(DType text_dtype);

// Bytes of device memory besides the weights.
struct ImageRunnerMemory {
  int64_t arena_bytes = 0;    // activations of one pass
  int64_t cache_bytes = 0;    // keys and values of one pass, of one layer
  int64_t staging_bytes = 0;  // a packed pass; as many in host memory
  int32_t num_blocks = 0;
  int64_t token_macs = 0;  // multiplications by weights per token of the tower, projector included

  int64_t total_bytes() const { return arena_bytes + cache_bytes + staging_bytes; }
};
// Runs the encoder on a backend that only counts. kInvalidArgument if the longest sequence does not
// fit into a pass.
Result<ImageRunnerMemory> ProfileImageRunner(const ImageEncoder& encoder,
                                             const ImageRunnerShape& shape);

// Owned by one thread. An image's rows have the same bits whatever is encoded with it.
class ImageRunner {
 public:
  // `encoder` must have been loaded with `ops`; both must outlive the runner. Errors are those of
  // ProfileImageRunner, and kResourceExhausted if memory runs out.
  static Result<std::unique_ptr<ImageRunner>> Create(const ImageEncoder& encoder, Ops& ops,
                                                     const ImageRunnerShape& shape);
  ~ImageRunner();

  int64_t bytes() const { return bytes_; }  // memory taken

  // Encodes images and writes row r of image i to row rows[i][r] of `cache`, f32 [any,
  // row_size]; these are distinct. Cuts the images into passes of whole sequences.
  // kInvalidArgument, before anything runs, if the encoder does not take an image or rows[i] has
  // another number of rows. The images need not outlive the call, whose work is only submitted when
  // it returns: later work on the stream sees the rows.
  Status Encode(std::span<const ImageView> images, std::span<const std::vector<int32_t>> rows,
                Tensor cache, Stream& stream);

 private:
  ImageRunner(const ImageEncoder& encoder, Ops& ops, const ImageRunnerShape& shape, KvPool pool);
  Status Init(const ImageRunnerMemory& memory);
  int32_t num_tokens() const { return whole().query_start_loc.back(); }
  // Begins a pass without sequences, once its staging memory is free.
  Status Begin();
  // Adds the sequence of tokens [begin, begin + length) of an image, unless none becomes a row.
  void Add(const ImageLayout& layout, const std::vector<int32_t>& rows, int32_t begin,
           int32_t length);
  // Copies a list to staging memory; returns the tensor that it will be on the device.
  template <typename T>
  Tensor Pack(const std::vector<T>& list, DType dtype, Shape shape);
  Tensor Pack(const std::vector<int32_t>& list);
  // Sequences of tokens that see each other, and their blocks.
  struct Sequences {
    int32_t max_blocks = 0;  // of one
    int32_t num_blocks = 0;
    std::vector<int32_t> query_start_loc = {0};
    std::vector<int32_t> lens, table_rows, tables;
    std::vector<int64_t> slot_mapping;

    void Clear();
    void Add(int32_t length, int32_t block_size);
  };
  Sequences& Of(nn::ImageScope scope) { return sequences_[static_cast<size_t>(scope)]; }
  const Sequences& whole() const { return sequences_[0]; }
  AttentionBatch Pack(const Sequences& sequences);
  void PackRopePositions(nn::Pass& pass);
  void PackPositionRows(nn::Pass& pass);
  // Uploads the pass and runs it.
  void Submit(Tensor cache, Stream& stream);

  const ImageEncoder& encoder_;
  Ops& ops_;
  const ImageRunnerShape shape_;
  KvPool pool_;
  std::unique_ptr<Arena> arena_;
  std::vector<std::unique_ptr<AttentionPlan>> plans_;  // per cache group
  std::vector<nn::AttentionMetadata> groups_;
  std::vector<nn::ImageScope> scopes_;  // per cache group
  std::vector<KvLayerView> layers_;     // per layer of the tower; those of a group are the same
  Buffer device_;                       // a packed pass: the patches, then lists
  Buffer staging_;                      // the same in host memory
  size_t packed_ = 0;                   // bytes
  std::unique_ptr<Event> uploaded_;     // staging_ is free
  std::unique_ptr<Event> done_;
  int64_t bytes_ = 0;
  std::vector<float> patches_;  // of one image
  // The current pass.
  static constexpr size_t kScopes = 3;
  std::array<Sequences, kScopes>
      sequences_;  // by ImageScope; without max_blocks if no layer has it
  std::vector<int32_t> positions_;
  std::vector<std::vector<int32_t>> rope_positions_;  // per dimension
  std::vector<int32_t> position_rows_;
  std::vector<float> position_weights_;
  std::vector<int32_t> logit_rows_;         // tokens that become rows
  std::vector<int32_t> row_from_, row_to_;  // of the encoder's result and of the cache
  std::vector<int32_t> newline_from_, newline_to_;
};

}  // namespace tokamak
