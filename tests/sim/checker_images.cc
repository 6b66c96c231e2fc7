// The part of EngineChecker that checks the encoder cache.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/checker.h"

namespace tokamak {

void EngineChecker::CheckImages(const std::map<ImageId, int32_t>& held) {
  if (core_->needs_reset_) return;
  const EncoderCache& cache = core_->encoder_;
  int32_t rows = 0;
  for (const auto& [image, entry] : cache.entries_) {
    rows += entry.num_rows;
    const auto found = held.find(image);
    if (found != held.end() && found->second == entry.num_rows) continue;
    verdict_->Fail(
        fmt::format("engine: the executor has no image {} with {} rows", image, entry.num_rows));
  }
  if (held.size() != cache.entries_.size()) {
    verdict_->Fail(fmt::format("engine: the executor has {} images, not {}", held.size(),
                               cache.entries_.size()));
  }
  if (rows != cache.num_rows() || rows != core_->counters_.image_rows_cached) {
    verdict_->Fail(fmt::format("engine: {} rows of images are not {}", rows, cache.num_rows()));
  }
}

// An image that a running sequence needs makes room only if all that the step does not use are
// needed, too.
void EngineChecker::CheckForgotten(const StepInput& step) {
  if (step.forget.empty()) return;
  std::set<ImageId> needed;
  std::set<ImageId> needed_before;  // by sequences that ran before this step
  for (const Sequence* s : core_->scheduler_.running_) {
    const bool admitted =
        std::any_of(step.admit.begin(), step.admit.end(),
                    [s](const AdmitSequence& admit) { return admit.slot == s->slot; });
    for (const ArrivalImage& image : s->request->images) {
      if (image.span.end() <= s->num_scheduled) continue;
      needed.insert(image.span.image);
      if (!admitted) needed_before.insert(image.span.image);
    }
  }
  for (const auto& [image, entry] : core_->encoder_.entries_) {
    if (entry.used || needed.contains(image)) continue;
    for (const ImageId forgotten : step.forget) {
      if (!needed_before.contains(forgotten)) continue;
      verdict_->Fail(fmt::format(
          "engine: image {} is forgotten although it is needed, and {} is not", forgotten, image));
    }
  }
}

}  // namespace tokamak
