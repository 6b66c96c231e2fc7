// The part of Scheduler that decides which images a step uses.
#include <algorithm>

#include "engine/scheduler.h"

namespace tokamak {

void Scheduler::BeginImages() {
  encoder_->BeginStep();
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    const Sequence& sequence = **it;
    if (sequence.num_scheduled >= sequence.images_end) continue;
    for (const ArrivalImage& image : sequence.request->images) {
      if (image.span.end() > sequence.num_scheduled) encoder_->Touch(image.span.image);
    }
  }
}

int32_t Scheduler::UseImages(const Sequence& sequence, int32_t wanted) {
  const int32_t start = sequence.num_scheduled;
  if (start >= sequence.images_end) return wanted;
  for (const ArrivalImage& image : sequence.request->images) {
    if (image.span.end() <= start) continue;
    const int32_t before = std::max(0, image.span.position - start);
    if (before >= wanted) break;
    // Rows of the prompt without which the image cannot be used.
    const int32_t least = options_.whole_image_rows > 0 ? image.span.end() - start : before + 1;
    if (wanted < least || !encoder_->MayUse(*image.image)) return before;
    if (!encoder_->Holds(image.span.image)) {
      const bool first = pass_.expected.image_rows == 0 && before == 0;
      pass_.expected.image_rows += image.image->num_rows;
      const int32_t fits =
          std::max(first ? least : 0, PrefillTokens(start, wanted, first ? least : 1));
      if (fits < least) {
        pass_.expected.image_rows -= image.image->num_rows;
        return before;
      }
      wanted = fits;
      pass_.schedule.cost.image_rows += image.image->num_rows;
    }
    encoder_->Use(image.image);
  }
  return wanted;
}

int32_t Scheduler::LeastTokens(const Sequence& sequence, int32_t start) const {
  if (options_.whole_image_rows == 0 || start >= sequence.images_end) return 1;
  for (const ArrivalImage& image : sequence.request->images) {
    if (image.span.end() <= start) continue;
    return image.span.position <= start ? image.span.end() - start : 1;
  }
  return 1;
}

bool Scheduler::MayUseImages(const Sequence& sequence) const {
  const bool may_encode =
      pass_.expected.image_rows == 0 || options_.target_seconds <= 0 || pass_.num_decodes == 0;
  const bool whole = options_.whole_image_rows > 0;
  const std::vector<ArrivalImage>& images = sequence.request->images;
  return std::all_of(images.begin(), images.end(), [&](const ArrivalImage& image) {
    const int32_t rows = whole ? image.span.num_rows : 1;
    return encoder_->MayUse(*image.image) && PrefillTokens(0, rows, rows) == rows &&
           (may_encode || encoder_->Holds(image.span.image));
  });
}

}  // namespace tokamak
