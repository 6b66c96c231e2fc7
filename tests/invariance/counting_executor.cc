#include "invariance/counting_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

namespace tokamak::invariance {
namespace {

struct Field {
  const char* name;
  int64_t Counts::*value;
  bool images = false;  // counts something of images
  // Something of the prefix cache, of drafts, or of images so large that a cache holds few, which
  // the golden models with states do not have.
  bool not_states = false;
};
constexpr Field kFields[] = {{"requests", &Counts::requests},
                             {"cancelled", &Counts::cancelled},
                             {"tokens", &Counts::tokens},
                             {"steps", &Counts::steps},
                             {"steps overlapped", &Counts::overlapped},
                             {"decodes by graphs", &Counts::graph_steps},
                             {"of these with drafts", &Counts::graph_drafts, false, true},
                             {"mixed steps", &Counts::mixed_steps},
                             {"prompt chunks", &Counts::chunks},
                             {"cached prompt tokens", &Counts::cached_tokens, false, true},
                             {"hits inside a block", &Counts::part_hits, false, true},
                             {"forks", &Counts::forks, false, true},
                             {"preemptions", &Counts::preemptions},
                             {"resumed", &Counts::resumed},
                             {"blocks swapped out", &Counts::swapped_out, false, true},
                             {"swapped in", &Counts::swapped_in, false, true},
                             {"drafts", &Counts::drafts, false, true},
                             {"accepted drafts", &Counts::accepted_drafts, false, true},
                             {"drafts with masks", &Counts::masked_drafts, false, true},
                             {"accepted drafts with masks", &Counts::masked_accepted, false, true},
                             {"ends of bounded reasoning", &Counts::thoughts_ended},
                             {"drafts by the model itself", &Counts::own_drafts, false, true},
                             {"drafts by another model", &Counts::other_drafts, false, true},
                             {"images encoded", &Counts::images_encoded, true},
                             {"images forgotten", &Counts::images_forgotten, true, true},
                             {"chunks that end inside an image", &Counts::chunks_in_images, true},
                             {"hits that end inside one", &Counts::hits_in_images, true, true},
                             {"sequences stopped inside one", &Counts::frees_in_images, true},
                             {"drafts behind images", &Counts::drafts_with_images, true, true},
                             {"mixes with 1 thread", &Counts::one_thread},
                             {"with 2", &Counts::two_threads}};

class CountingExecutor final : public Executor {
 public:
  CountingExecutor(std::unique_ptr<Executor> inner, bool graphs, uint64_t seed, Counts* counts)
      : inner_(std::move(inner)),
        graphs_(graphs),
        random_(seed),
        counts_(*counts),
        slots_(static_cast<size_t>(inner_->limits().max_seqs)) {}

  const ExecutorLimits& limits() const override { return inner_->limits(); }
  Status Submit(StepInput step) override {
    Count(step);
    if (in_flight_++ > 0) ++counts_.overlapped;
    return inner_->Submit(std::move(step));
  }
  Status Sample(uint64_t number) override { return inner_->Sample(number); }
  Status SampleMasked(uint64_t number, std::vector<TokenMask> masks) override {
    return inner_->SampleMasked(number, std::move(masks));
  }
  bool Done(uint64_t) override { return random_() % 4 == 0; }
  Result<StepOutput> Wait(uint64_t number) override {
    --in_flight_;
    Result<StepOutput> output = inner_->Wait(number);
    const auto slots = masked_drafts_.extract(number);
    for (size_t i = 0; output.ok() && !slots.empty() && i < output->rows.size(); ++i) {
      const RowOutput& row = output->rows[i];
      if (!slots.mapped().contains(row.slot) || row.tokens.empty()) continue;
      counts_.masked_accepted += static_cast<int64_t>(row.tokens.size()) - 1;
    }
    return output;
  }
  Status Reset() override {
    in_flight_ = 0;
    masked_drafts_.clear();
    return inner_->Reset();
  }

 private:
  struct Slot {
    int32_t known_left = 0;  // tokens known at admission that are still to compute
    int32_t position = 0;    // the next to compute
    std::vector<ImageSpan> images = {};

    bool inside_image() const {
      return std::any_of(images.begin(), images.end(), [&](const ImageSpan& image) {
        return image.position < position && position < image.end();
      });
    }
  };

  void Count(const StepInput& step) {
    ++counts_.steps;
    for (const SequenceSlotId free : step.free) {
      if (slots_[static_cast<size_t>(free)].inside_image()) ++counts_.frees_in_images;
    }
    counts_.images_forgotten += std::ssize(step.forget);
    counts_.images_encoded += std::ssize(step.encode);
    for (const CopyBlock& copy : step.copies) {
      const bool from_device = copy.source_tier == Tier::kDevice;
      const bool to_device = copy.destination_tier == Tier::kDevice;
      if (from_device && !to_device) ++counts_.swapped_out;
      if (!from_device && to_device) ++counts_.swapped_in;
    }
    for (const AdmitSequence& admit : step.admit) CountAdmission(admit);
    bool decodes = false;
    bool prefills = false;
    bool drafts = false;
    for (const StepRow& row : step.rows) {
      Slot& slot = slots_[static_cast<size_t>(row.slot)];
      (slot.known_left > 0 ? prefills : decodes) = true;
      slot.known_left -= row.num_tokens;
      slot.position += row.num_tokens;
      if (slot.known_left > 0) ++counts_.chunks;
      if (slot.inside_image()) ++counts_.chunks_in_images;
      drafts |= !row.drafts.empty();
      if (!slot.images.empty()) counts_.drafts_with_images += std::ssize(row.drafts);
      if (!row.masked || row.drafts.empty()) continue;
      counts_.masked_drafts += static_cast<int64_t>(row.drafts.size());
      masked_drafts_[step.number].insert(row.slot);
    }
    if (decodes && prefills) ++counts_.mixed_steps;
    if (!graphs_ || !decodes || prefills) return;
    ++counts_.graph_steps;
    if (drafts) ++counts_.graph_drafts;
  }

  void CountAdmission(const AdmitSequence& admit) {
    const auto known = static_cast<int32_t>(admit.tokens.size());
    Slot& slot = slots_[static_cast<size_t>(admit.slot)];
    slot = {.known_left = known - admit.num_computed,
            .position = admit.num_computed,
            .images = admit.images};
    if (slot.inside_image()) ++counts_.hits_in_images;
    const int32_t block_size = inner_->limits().cache.groups.front().block_size;
    if (known > admit.num_prompt_tokens) {
      ++counts_.resumed;
    } else if (admit.choice > 0) {
      if (admit.num_computed > 0) ++counts_.forks;
    } else if (admit.num_computed % block_size != 0) {
      ++counts_.part_hits;
    }
  }

  const std::unique_ptr<Executor> inner_;
  const bool graphs_;
  std::mt19937_64 random_;
  int32_t in_flight_ = 0;
  Counts& counts_;
  std::map<uint64_t, std::set<SequenceSlotId>> masked_drafts_;  // rows with them, by step in flight
  std::vector<Slot> slots_;
};

}  // namespace

void Counts::Add(const Counts& other) {
  for (const Field& field : kFields) this->*field.value += other.*field.value;
}

std::string Counts::ToString() const {
  std::string out;
  for (const Field& field : kFields) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", this->*field.value, field.name);
  }
  return out;
}

std::string Counts::FirstZero(const Needs& needs) const {
  for (const Field& field : kFields) {
    const bool by_model =
        field.value == &Counts::own_drafts || field.value == &Counts::other_drafts;
    const bool masked = field.value == &Counts::masked_drafts ||
                        field.value == &Counts::masked_accepted ||
                        field.value == &Counts::thoughts_ended;
    const bool only_graphs =
        field.value == &Counts::graph_steps || field.value == &Counts::graph_drafts;
    if (needs.graphs ? masked : only_graphs) continue;
    if (by_model && !needs.draft_models) continue;
    if (field.images && !needs.images) continue;
    if (field.not_states && needs.states) continue;
    if (this->*field.value == 0) return field.name;
  }
  return "";
}

std::unique_ptr<Executor> MakeCountingExecutor(std::unique_ptr<Executor> inner, bool graphs,
                                               uint64_t seed, Counts* counts) {
  return std::make_unique<CountingExecutor>(std::move(inner), graphs, seed, counts);
}

}  // namespace tokamak::invariance
