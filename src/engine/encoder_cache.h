// EncoderCache: which images the executor's encoder cache holds, and which ones the next step
// encodes and forgets.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "step/step_input.h"

namespace tokamak {

// Mirrors the cache of rows that the executor keeps (EncodeImage). A step uses images, whose rows
// all fit at once. What it encodes takes the place of images that it does not use, least recently
// used first. Steps take effect in order, so an image may be forgotten although rows in flight read
// it. Engine thread only.
class EncoderCache {
 public:
  // `max_rows`: that the cache holds; `max_step_rows`: of all images that a step encodes.
  EncoderCache(int32_t max_rows, int32_t max_step_rows)
      : max_rows_(max_rows), max_step_rows_(max_step_rows) {}

  // The next step uses no image yet.
  void BeginStep();
  // The image will be used by a later step. Does nothing if the cache does not hold it.
  void Touch(ImageId image);
  bool Holds(ImageId image) const { return entries_.contains(image); }
  // Whether the step can use this image beside those that it uses already.
  bool MayUse(const EncodeImage& image) const;
  // The step uses the image, and encodes it if the cache does not hold it. Requires MayUse.
  void Use(const std::shared_ptr<const EncodeImage>& image);

  struct StepWork {
    std::vector<ImageId> forget;
    std::vector<std::shared_ptr<const EncodeImage>> encode;
  };
  // Returns the changes since the last call.
  StepWork TakeStepWork();
  // Forgets everything. An executor that is reset does, too.
  void Reset();

  int32_t num_rows() const { return num_rows_; }
  int64_t num_evicted_rows() const { return num_evicted_rows_; }

 private:
  friend class EngineChecker;  // tests/sim: recounts everything

  struct Entry {
    int32_t num_rows = 0;
    uint64_t last_use = 0;
    bool used = false;  // by the next step
  };

  void EvictOne();
  void MarkUsed(Entry* entry);

  const int32_t max_rows_;
  const int32_t max_step_rows_;
  std::map<ImageId, Entry> entries_;
  int32_t num_rows_ = 0;
  int32_t num_used_rows_ = 0;     // of images that the next step uses
  int32_t num_encoded_rows_ = 0;  // of images that it encodes
  uint64_t now_ = 0;              // counts uses
  int64_t num_evicted_rows_ = 0;
  StepWork work_;
};

}  // namespace tokamak
