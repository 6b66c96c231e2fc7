// The part of Runner that encodes images.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "runner/runner.h"

namespace tokamak {

ImageRunnerShape MakeImageRunnerShape(const RunnerShape& shape, const ImageEncoderSpec& encoder) {
  const int64_t rows = std::max(1, encoder.max_image_rows);
  const int64_t tokens =
      (int64_t{shape.max_step_image_rows} * encoder.max_image_tokens + rows - 1) / rows;
  const auto max_tokens = static_cast<int32_t>(std::max<int64_t>(encoder.max_sequence_len, tokens));
  const int32_t shortest =
      encoder.min_sequence_len > 0 ? encoder.min_sequence_len : encoder.max_sequence_len;
  return {.max_tokens = max_tokens,
          .max_sequences = std::max(1, max_tokens / shortest),
          .block_size = shape.block_size,
          .kv_dtype = ImageKvDtype(shape.kv_dtype)};
}

namespace {

int64_t EncoderCacheBytes(const RunnerShape& shape, const ImageEncoderSpec& encoder) {
  return int64_t{shape.max_encoder_rows} * encoder.row_size * static_cast<int64_t>(sizeof(float));
}

}  // namespace

Result<int64_t> EncoderBytes(const ImageEncoder& encoder, const RunnerShape& shape) {
  if (shape.max_encoder_rows == 0) return 0;
  ASSIGN_OR_RETURN(const ImageRunnerMemory memory,
                   ProfileImageRunner(encoder, MakeImageRunnerShape(shape, encoder.spec())));
  return memory.total_bytes() + memory.staging_bytes + EncoderCacheBytes(shape, encoder.spec());
}

Status Runner::MakeImageRunner() {
  if (shape_.max_encoder_rows == 0 || !stage().first()) return Status();
  const ImageEncoder* const encoder = model_.image_encoder();
  if (encoder == nullptr) {
    return InvalidArgument("max_encoder_rows: is {}, but the model has no image encoder",
                           shape_.max_encoder_rows);
  }
  ASSIGN_OR_RETURN(
      image_runner_,
      ImageRunner::Create(*encoder, ops_, MakeImageRunnerShape(shape_, encoder->spec())));
  ASSIGN_OR_RETURN(encoder_cache_,
                   ops_.Allocate(static_cast<size_t>(EncoderCacheBytes(shape_, encoder->spec())),
                                 MemoryKind::kDevice));
  return Status();
}

Tensor Runner::EncoderCache() const {
  if (!image_runner_) return {};
  return Tensor(encoder_cache_.data(), DType::kF32,
                Shape{shape_.max_encoder_rows, model_.image_encoder()->spec().row_size});
}

Status Runner::EncodeImages(const StepInput& step) {
  if (step.encode.empty() || !stage().first()) return Status();
  std::vector<ImageView> images;
  std::vector<std::vector<int32_t>> rows;
  for (const EncodeImage& image : step.encode) {
    images.push_back({.shape = image.shape,
                      .values = image.values,
                      .grid_height = image.grid_height,
                      .grid_width = image.grid_width,
                      .image_height = image.image_height,
                      .image_width = image.image_width});
    rows.push_back(*slots_.encoder_rows().Find(image.id));
  }
  return image_runner_->Encode(images, rows, EncoderCache(), *stream_);
}

}  // namespace tokamak
