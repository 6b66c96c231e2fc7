// The part of EngineCore that sees to the images of prompts.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/engine_core.h"

namespace tokamak {

Status EngineCore::CheckImages(const Arrival& arrival) const {
  int32_t most = std::min(limits_.max_encoder_rows, limits_.max_step_image_rows);
  if (limits_.whole_image_rows > 0) most = std::min(most, limits_.whole_image_rows);
  if (!arrival.images.empty() && limits_.max_encoder_rows == 0) {
    return InvalidArgument("images: the model takes no images, got {}", arrival.images.size());
  }
  int32_t free = 0;  // the first position behind the images so far
  for (size_t i = 0; i < arrival.images.size(); ++i) {
    const auto& [span, image] = arrival.images[i];
    if (!image || image->id == 0 || image->id != span.image ||
        image->shape.size() > kMaxImageDims) {
      return InvalidArgument("images[{}]: there is no image {}", i, span.image);
    }
    if (image->num_rows > most) {
      return ResourceExhausted("images[{}]: has {} rows, but the engine can encode at most {}", i,
                               image->num_rows, most);
    }
    if (span.first_row < 0 || span.num_rows < 1 ||
        int64_t{span.first_row} + span.num_rows > image->num_rows) {
      return InvalidArgument("images[{}]: shows {} rows from row {} on, but has {}", i,
                             span.num_rows, span.first_row, image->num_rows);
    }
    if (limits_.whole_image_rows > 0 && span.num_rows != image->num_rows) {
      return InvalidArgument("images[{}]: shows {} of {} rows, but all must be in the prompt", i,
                             span.num_rows, image->num_rows);
    }
    if (span.grid_width != 0 && (span.grid_width < 0 || span.num_rows != image->num_rows ||
                                 span.num_rows % span.grid_width != 0)) {
      return InvalidArgument("images[{}]: {} of {} rows are no grid {} wide", i, span.num_rows,
                             image->num_rows, span.grid_width);
    }
    if (span.position < free ||
        span.position + int64_t{span.num_rows} > std::ssize(arrival.prompt)) {
      return InvalidArgument(
          "images[{}]: {} rows from position {} on overlap another image or exceed the prompt of "
          "{} tokens",
          i, span.num_rows, span.position, arrival.prompt.size());
    }
    free = span.end();
  }
  return Status();
}

int32_t EngineCore::BlocksNeeded(const Arrival& arrival, int32_t positions) const {
  int32_t needed = blocks_.BlocksFor(positions, 1);
  if (limits_.whole_image_rows == 0) return needed;
  for (const ArrivalImage& image : arrival.images) {
    needed = std::max(needed, blocks_.BlocksFor(image.span.end(), image.span.num_rows));
  }
  return needed;
}

std::vector<ContentId> EngineCore::PromptContent(const Arrival& arrival) {
  std::vector<ContentId> content(arrival.prompt.begin(), arrival.prompt.end());
  for (const ArrivalImage& image : arrival.images) {
    const ImageSpan& span = image.span;
    auto* row = &content[static_cast<size_t>(span.position)];
    for (int32_t i = 0; i < span.num_rows; ++i)
      *row++ = ImageContent(span.image, span.first_row + i);
  }
  return content;
}

void EngineCore::AddImages(Arrival* arrival, RequestState* request) {
  if (arrival->images.empty()) return;
  for (const auto& sequence : request->choices) {
    sequence->images_end = arrival->images.back().span.end();
  }
  request->images = std::move(arrival->images);
  request->prompt = std::move(arrival->prompt);
}

void EngineCore::PackImages(StepInput* input) {
  EncoderCache::StepWork work = encoder_.TakeStepWork();
  input->forget = std::move(work.forget);
  // The engine keeps the values, because a preempted sequence may need its image again.
  for (const auto& image : work.encode) input->encode.push_back(*image);
  counters_.images_encoded += static_cast<int64_t>(work.encode.size());
}

}  // namespace tokamak
