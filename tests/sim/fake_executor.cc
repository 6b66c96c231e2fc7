#include "sim/fake_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "step/step_codec.h"

namespace tokamak::sim {

template <typename... Args>
void FakeExecutor::Fail(const char* format, Args... args) {
  verdict_->Fail(
      fmt::format("step {}: {}", next_number_, fmt::format(fmt::runtime(format), args...)));
}

FakeExecutor::FakeExecutor(FakeExecutorOptions options, uint64_t seed, ManualClock* clock,
                           Verdict* verdict)
    : options_(std::move(options)),
      block_size_(options_.limits.cache.groups[0].block_size),
      rng_(seed),
      clock_(clock),
      verdict_(verdict),
      slots_(options_.limits.max_seqs),
      device_(static_cast<size_t>(options_.limits.cache.num_device_blocks) * block_size_),
      host_(static_cast<size_t>(options_.limits.cache.num_host_blocks) * block_size_),
      states_(slots_.size()),
      named_by_(options_.limits.cache.num_device_blocks, -1),
      named_life_(options_.limits.cache.num_device_blocks),
      busy_until_(options_.limits.stages) {}

bool FakeExecutor::Injected(int32_t permille) {
  if (permille == 0 || rng_.In(0, 999) >= permille) return false;
  broken_ = true;
  ++num_failures_;
  return true;
}

template <typename T>
Result<T> FakeExecutor::Received(Result<T> value) {
  if (!value.ok()) Fail("{}", value.status().message());
  return value;
}

Status FakeExecutor::Submit(StepInput sent) {
  // All values go through bytes, as if this executor were in another process.
  ASSIGN_OR_RETURN(const StepInput step, Received(DecodeStepInput(Encode(sent), options_.limits)));
  if (broken_) Fail("submitted after an error without a reset");
  if (step.number != next_number_) Fail("has number {}", step.number);
  if (static_cast<int>(steps_in_flight_.size()) >= options_.limits.depth)
    Fail("too many in flight");
  if (!steps_in_flight_.empty() && !steps_in_flight_.back().all_sampled()) {
    Fail("submitted before all draws of the step before");
  }
  if (on_submit) on_submit(step);
  if (Injected(options_.failure_permille)) return Internal("injected at submit");
  for (const SequenceSlotId slot : step.free) Free(slot);
  for (const CopyBlock& copy : step.copies) Copy(copy);
  const int32_t image_rows = EncodeImages(step);
  for (const AdmitSequence& admit : step.admit) Admit(admit);
  for (const ForkSequence& fork : step.fork) Fork(fork);
  for (const AppendBlocks& append : step.append) Append(append);
  StepInFlight in_flight;
  in_flight.output.number = step.number;
  int32_t tokens = 0, drafts = 0, proposals = 0;
  needs_ = clock_->Now();
  for (const StepRow& row : step.rows) {
    if (!verdict_->ok()) break;
    const bool chooses = row.sample || row.num_candidates > 0;
    if (row.masked && !chooses) Fail("masks slot {}, which chooses nothing", row.slot);
    if (chooses) {
      (row.masked ? in_flight.masked_draws : in_flight.draws)
          .push_back(in_flight.output.rows.size());
    }
    in_flight.output.rows.push_back(RunRow(row));
    tokens += row.num_tokens;
    drafts += static_cast<int32_t>(row.drafts.size());
    proposals += row.num_proposals;
  }
  if (proposals > options_.limits.max_step_drafts) Fail("wants {} proposals", proposals);
  if (drafts > options_.limits.max_step_drafts) Fail("has {} drafts", drafts);
  num_drafts_ += drafts;
  if (step.rows.empty()) Fail("has no rows");
  if (tokens > options_.limits.max_step_tokens) Fail("has {} tokens", tokens);
  const double noise = 1 + options_.jitter * rng_.Unit();
  const double seconds = options_.step_seconds + (tokens + proposals) * options_.token_seconds +
                         image_rows * options_.image_row_seconds;
  in_flight.done = RunStages(needs_, seconds, noise);
  in_flight.output.proposing_seconds = proposals * options_.token_seconds * noise;
  steps_in_flight_.push_back(std::move(in_flight));
  ++next_number_;
  ++num_steps_;
  num_rows_ += static_cast<int64_t>(step.rows.size());
  num_copies_ += static_cast<int64_t>(step.copies.size());
  return Status();
}

TimePoint FakeExecutor::RunStages(TimePoint start, double seconds, double noise) {
  const double part = seconds / static_cast<double>(busy_until_.size());
  for (TimePoint& busy_until : busy_until_) {
    if (&busy_until != &busy_until_.front()) noise = 1 + options_.jitter * rng_.Unit();
    const std::chrono::duration<double> taken(part * noise);
    start = busy_until = std::max(busy_until, start) + std::chrono::duration_cast<Duration>(taken);
  }
  return start;
}

Status FakeExecutor::Sample(uint64_t number) {
  if (broken_ || steps_in_flight_.empty()) Fail("sampled out of order");
  if (number + 1 != next_number_ || steps_in_flight_.back().sampled)
    Fail("sampled step {}", number);
  StepInFlight& step = steps_in_flight_.back();
  step.sampled = true;
  if (Injected(options_.failure_permille)) return Internal("injected at sample");
  Draw(step.draws, {});
  return Status();
}

Status FakeExecutor::SampleMasked(uint64_t number, std::vector<TokenMask> sent) {
  ASSIGN_OR_RETURN(const std::vector<TokenMask> masks,
                   Received(DecodeTokenMasks(Encode(sent), options_.limits)));
  if (broken_ || steps_in_flight_.empty()) Fail("sampled masked rows out of order");
  StepInFlight& step = steps_in_flight_.back();
  if (number + 1 != next_number_ || !step.sampled || step.all_sampled())
    Fail("sampled the masked rows of step {}", number);
  step.masked_sampled = true;
  if (Injected(options_.failure_permille)) return Internal("injected at sampling masked rows");
  CheckMasks(step, masks);
  Draw(step.masked_draws, masks);
  return Status();
}

void FakeExecutor::Draw(const std::vector<size_t>& rows, const std::vector<TokenMask>& masks) {
  for (const size_t index : rows) {
    if (!verdict_->ok()) break;
    RowOutput& row = steps_in_flight_.back().output.rows[index];
    const auto mask = [&]() -> const TokenMask* {
      const auto draw = static_cast<int32_t>(row.tokens.size());
      const auto found = std::find_if(masks.begin(), masks.end(), [&](const TokenMask& m) {
        return m.slot == row.slot && m.draw == draw;
      });
      return found == masks.end() ? nullptr : &*found;
    };
    Slot& slot = slots_[row.slot];
    if (slot.num_candidates > 0) {
      FindCandidates(mask(), &row);
      continue;
    }
    slot.drawn = true;
    bool drawn = DrawToken(mask(), &row);
    const bool has_drafts = slot.draft_row + 1 == static_cast<int64_t>(next_number_);
    for (const TokenId draft : has_drafts ? slot.drafts : std::vector<TokenId>()) {
      if (!drawn || row.tokens.back() != draft) break;
      const TokenMask* const of_this = mask();
      drawn = DrawToken(of_this, &row);
      if (!drawn) break;
      ++slot.computed;
      ++num_accepted_;
      num_masked_accepted_ += of_this != nullptr ? 1 : 0;
    }
    if (row.health == RowHealth::kOk) Propose(&row);
  }
}

void FakeExecutor::Propose(RowOutput* out) {
  const Slot& slot = slots_[out->slot];
  uint64_t prefix = slot.prefixes.back();
  const uint64_t seed = slot.sampling.seed.value();
  Rng rng(Mix(prefix, seed + static_cast<uint64_t>(slot.choice)));  // the same in a replay
  const int32_t count = rng.In(0, slot.num_proposals);
  const int64_t step = static_cast<int64_t>(next_number_) - 1;
  for (int32_t i = 0; i < count; ++i) {
    const auto right = options_.model.Draw(prefix, seed, slot.choice, [](TokenId) { return true; });
    const TokenId token =
        rng.Chance(70) ? right.value_or(0) : rng.In(0, options_.limits.vocab_size - 1);
    out->proposals.push_back(token);
    prefix = TokenModel::Extend(prefix, token);
    for (int32_t g = 0; g < static_cast<int32_t>(slot.tables.size()); ++g) {
      WriteEntry(slot, g, slot.computed + i, /*entry=*/prefix, step);
    }
  }
  num_proposals_ += count;
}

void FakeExecutor::CheckMasks(const StepInFlight& step, const std::vector<TokenMask>& masks) {
  std::map<SequenceSlotId, std::map<int32_t, const TokenMask*>> by_slot;
  for (const TokenMask& mask : masks) {
    if (!by_slot[mask.slot].emplace(mask.draw, &mask).second) {
      Fail("has two masks for draw {} of slot {}", mask.draw, mask.slot);
    }
    if (mask.allowed.size() != (static_cast<size_t>(options_.limits.vocab_size) + 31) / 32) {
      return Fail("has a mask of {} words", mask.allowed.size());
    }
  }
  for (const size_t index : step.masked_draws) {
    const SequenceSlotId id = step.output.rows[index].slot;
    const auto found = by_slot.extract(id);
    if (found.empty()) continue;  // the sequence has ended
    const Slot& slot = slots_[id];
    const bool has_drafts = slot.draft_row + 1 == static_cast<int64_t>(next_number_);
    const size_t num_drafts = has_drafts ? slot.drafts.size() : 0;
    const auto& of_row = found.mapped();
    if (of_row.size() != num_drafts + 1 || of_row.begin()->first != 0 ||
        of_row.rbegin()->first != static_cast<int32_t>(num_drafts)) {
      return Fail("has {} masks for slot {} with {} drafts", of_row.size(), id, num_drafts);
    }
    for (size_t i = 0; i < num_drafts; ++i) {
      const TokenId draft = slot.drafts[i];
      if ((of_row.at(static_cast<int32_t>(i))->allowed[draft / 32] >> draft % 32 & 1) != 0)
        continue;
      Fail("has a draft in slot {} that its mask forbids", id);
    }
  }
  if (!by_slot.empty()) Fail("has a mask for slot {}", by_slot.begin()->first);
}

bool FakeExecutor::Done(uint64_t number) {
  if (steps_in_flight_.empty() || number != static_cast<uint64_t>(oldest_)) {
    Fail("asked whether step {} is done", number);
    return false;
  }
  return steps_in_flight_.front().done <= clock_->Now();
}

Result<StepOutput> FakeExecutor::Wait(uint64_t number) {
  if (broken_ || steps_in_flight_.empty() || number != static_cast<uint64_t>(oldest_) ||
      !steps_in_flight_.front().all_sampled()) {
    Fail("waited for step {}", number);
    return Internal("out of order");
  }
  clock_->Set(std::max(clock_->Now(), steps_in_flight_.front().done));
  if (Injected(options_.failure_permille)) return Internal("injected at wait");
  StepOutput output = std::move(steps_in_flight_.front().output);
  steps_in_flight_.pop_front();
  ++oldest_;
  return Received(DecodeStepOutput(Encode(output), options_.limits));
}

Status FakeExecutor::Reset() {
  if (!broken_) Fail("reset without an error");
  if (rng_.Chance(options_.reset_failure_percent)) return Internal("injected at reset");
  broken_ = false;
  steps_in_flight_.clear();
  for (Slot& slot : slots_) slot.used = false;
  std::fill(device_.begin(), device_.end(), 0xdead);
  std::fill(host_.begin(), host_.end(), 0xdead);
  std::fill(states_.begin(), states_.end(), 0xdead);
  std::fill(named_by_.begin(), named_by_.end(), -1);
  images_.clear();
  next_number_ = 0;
  oldest_ = 0;
  return Status();
}

Status FakeExecutor::Lost() {
  if (!broken_ && Injected(options_.failure_permille)) {
    return Unavailable("injected between two calls");
  }
  return Status();
}

void FakeExecutor::Free(SequenceSlotId slot) {
  if (!slots_[slot].used) Fail("frees slot {}, which is free", slot);
  if (InFlight(slots_[slot].last_row)) Fail("frees slot {} with a row in flight", slot);
  slots_[slot].used = false;
}

void FakeExecutor::Copy(const CopyBlock& copy) {
  const bool to_device = copy.destination_tier == Tier::kDevice;
  if (copy.source_tier == Tier::kHost && !to_device) Fail("copies from host to host");
  std::vector<uint64_t>& from = copy.source_tier == Tier::kDevice ? device_ : host_;
  std::vector<uint64_t>& to = to_device ? device_ : host_;
  if (to_device && InFlight(named_by_[copy.destination])) {
    Fail("copies into block {}, which step {} in flight uses", copy.destination,
         named_by_[copy.destination]);
  }
  const auto source = from.begin() + static_cast<size_t>(copy.source) * block_size_;
  std::copy(source, source + block_size_,
            to.begin() + static_cast<size_t>(copy.destination) * block_size_);
}

int32_t FakeExecutor::EncodeImages(const StepInput& step) {
  for (const ImageId image : step.forget) {
    if (images_.erase(image) == 0) Fail("forgets image {}, which it does not have", image);
  }
  int32_t rows = 0;
  for (const EncodeImage& image : step.encode) {
    if (image.id == 0 || image != ImageOf(image.id)) Fail("encodes another image as {}", image.id);
    if (!images_.emplace(image.id, image.num_rows).second) Fail("encodes image {} again", image.id);
    rows += image.num_rows;
  }
  num_encoded_ += static_cast<int64_t>(step.encode.size());
  if (rows > options_.limits.max_step_image_rows) Fail("encodes {} rows", rows);
  int32_t held = 0;
  for (const auto& [image, num_rows] : images_) held += num_rows;
  if (held > options_.limits.max_encoder_rows) Fail("has {} rows in the encoder cache", held);
  return rows;
}

void FakeExecutor::CheckSpans(const AdmitSequence& admit) {
  int32_t free = 0;
  for (const ImageSpan& span : admit.images) {
    if (span.position < free || span.num_rows < 1 || span.end() > admit.num_prompt_tokens) {
      return Fail("shows {} rows of an image from position {} on", span.num_rows, span.position);
    }
    for (int32_t p = span.position; p < span.end(); ++p) {
      if (admit.tokens[p] != options_.limits.vocab_size - 1) {
        Fail("has token {} in an image", admit.tokens[p]);
      }
    }
    free = span.end();
  }
}

void FakeExecutor::CheckImages(const Slot& slot, int32_t start, int32_t end) {
  for (const ImageSpan& span : slot.images) {
    if (span.end() <= start || span.position >= end) continue;
    if (options_.limits.whole_image_rows > 0 && end < span.end()) {
      Fail("computes positions {} to {}, but image {} ends at {}", start, end - 1, span.image,
           span.end());
    }
    const auto held = images_.find(span.image);
    if (held == images_.end() || span.first_row + span.num_rows > held->second) {
      Fail("computes positions {} to {}, which show image {}, without it", start, end - 1,
           span.image);
    }
  }
}

void FakeExecutor::Admit(const AdmitSequence& admit) {
  Slot& slot = slots_[admit.slot];
  if (slot.used) Fail("admits to slot {}, which is in use", admit.slot);
  if (admit.num_computed >= static_cast<int32_t>(admit.tokens.size()) || admit.num_computed < 0) {
    Fail("admits {} tokens of which {} are computed", admit.tokens.size(), admit.num_computed);
  }
  if (options_.limits.cache.sequence_state && admit.num_computed > 0) {
    Fail("admits to slot {} with {} computed positions and without their state", admit.slot,
         admit.num_computed);
  }
  slot.used = true;
  slot.life = ++lives_;
  const int32_t original_context = options_.limits.cache.original_context;
  slot.long_rope =
      original_context > 0 &&
      (admit.long_rope || static_cast<int32_t>(admit.tokens.size()) > original_context);
  CheckSpans(admit);
  slot.tokens = admit.tokens;
  slot.images = admit.images;
  slot.num_prompt = admit.num_prompt_tokens;
  slot.computed = admit.num_computed;
  slot.last_row = slot.last_draw = slot.draft_row = -1;
  slot.num_candidates = slot.num_proposals = 0;
  slot.drawn = false;
  slot.sampling = admit.sampling;
  slot.choice = admit.choice;
  slot.tables.resize(options_.limits.cache.groups.size());
  for (auto& table : slot.tables) table.clear();
  slot.prefixes = TokenModel::Prefixes(admit.sampling.seed.value(), slot.tokens, slot.images);
}

void FakeExecutor::Fork(const ForkSequence& fork) {
  Slot& slot = slots_[fork.slot];
  const Slot& source = slots_[fork.source];
  if (!source.used || source.drawn) Fail("forks from slot {}", fork.source);
  if (&slot != &source && slot.used) Fail("forks to slot {}, which is in use", fork.slot);
  if (source.computed != static_cast<int32_t>(source.tokens.size()) || fork.tokens.empty()) {
    Fail("forks {} tokens from slot {}, which has {} with {} computed", fork.tokens.size(),
         fork.source, source.tokens.size(), source.computed);
  }
  if (InFlight(source.last_row)) Fail("forks from slot {} with a row in flight", fork.source);
  ++num_forks_;
  if (&slot != &source) {
    slot = source;
    slot.life = ++lives_;
    slot.last_row = slot.last_draw = -1;
    states_[fork.slot] = states_[fork.source];
    for (auto& table : slot.tables) table.clear();
  }
  for (const TokenId token : fork.tokens) {
    slot.tokens.push_back(token);
    slot.prefixes.push_back(TokenModel::Extend(slot.prefixes.back(), token));
  }
}

void FakeExecutor::Append(const AppendBlocks& append) {
  if (!slots_[append.slot].used) Fail("appends blocks to slot {}, which is free", append.slot);
  auto& table = slots_[append.slot].tables[append.group];
  table.insert(table.end(), append.blocks.begin(), append.blocks.end());
}

void FakeExecutor::CheckPast(const Slot& slot, int32_t group, int32_t start) {
  const CacheGroup& g = options_.limits.cache.groups[group];
  const int32_t first = g.kind == CacheGroupKind::kFull ? 0 : std::max(0, start - g.window + 1);
  for (int32_t p = first; p < start; ++p) {
    const int32_t index = p / block_size_;
    const BlockId block = slot.tables[group][index];
    if (block == kNoBlock) {
      Fail("position {} of group {} has no block, start {}", p, group, start);
      return;
    }
    if (device_[static_cast<size_t>(block) * block_size_ + p % block_size_] !=
        Entry(slot, group, p)) {
      Fail("block {} does not hold position {} of group {}, start {}", block, p, group, start);
      return;
    }
    const bool others = InFlight(named_by_[block]) && named_life_[block] != slot.life;
    named_by_[block] = static_cast<int64_t>(next_number_);
    named_life_[block] = others ? 0 : slot.life;
  }
}

void FakeExecutor::WriteRow(const Slot& slot, int32_t group, int32_t start, int32_t num_tokens) {
  for (int32_t p = start; p < start + num_tokens; ++p) {
    WriteEntry(slot, group, p, Entry(slot, group, p), static_cast<int64_t>(next_number_));
  }
}

void FakeExecutor::AdvanceState(SequenceSlotId id, int32_t start, int32_t end) {
  if (!options_.limits.cache.sequence_state) return;
  const Slot& slot = slots_[id];
  if (start > 0 && states_[id] != Entry(slot, 0, start - 1)) {
    Fail("slot {} does not have the state behind position {}", id, start - 1);
  }
  states_[id] = Entry(slot, 0, end - 1);
}

void FakeExecutor::WriteEntry(const Slot& slot, int32_t group, int32_t position, uint64_t entry,
                              int64_t step) {
  const BlockId block = slot.tables[group][position / block_size_];
  if (block < 0 || block >= options_.limits.cache.num_device_blocks) {
    Fail("writes position {} to block {}", position, block);
    return;
  }
  if (InFlight(named_by_[block]) && named_life_[block] != slot.life) {
    Fail("writes block {}, which another sequence uses in step {}", block, named_by_[block]);
  }
  named_by_[block] = step;
  named_life_[block] = slot.life;
  device_[static_cast<size_t>(block) * block_size_ + position % block_size_] = entry;
}

void FakeExecutor::CheckProposals(const Slot& slot, const StepRow& row, int32_t end) {
  if (row.num_proposals == 0) return;
  if (row.num_proposals < 0 || !row.sample) {
    Fail("slot {} wants {} proposals", row.slot, row.num_proposals);
  }
  const int32_t last = end + row.num_proposals;
  for (const auto& table : slot.tables) {
    if (static_cast<int32_t>(table.size()) * block_size_ >= last) continue;
    Fail("slot {} has too few blocks to propose up to position {}", row.slot, last - 1);
  }
  const int32_t original_context = options_.limits.cache.original_context;
  if (last > options_.limits.max_context ||
      (original_context > 0 && !slot.long_rope && last > original_context)) {
    Fail("slot {} is to propose beyond its context, up to position {}", row.slot, last - 1);
  }
}

void FakeExecutor::CheckCandidates(const Slot& slot, const StepRow& row, int32_t end) {
  if (row.num_candidates == 0) return;
  if (row.num_candidates < 0 || row.sample || slot.drawn ||
      end != static_cast<int32_t>(slot.tokens.size())) {
    Fail("slot {} wants {} candidates behind position {}", row.slot, row.num_candidates, end - 1);
  }
}

RowOutput FakeExecutor::RunRow(const StepRow& row) {
  Slot& slot = slots_[row.slot];
  RowOutput out;
  out.slot = row.slot;
  const int32_t start = slot.computed;
  const int32_t end = start + row.num_tokens;
  const int32_t num_drafts = static_cast<int32_t>(row.drafts.size());
  const int32_t known = static_cast<int32_t>(slot.tokens.size());
  if (!slot.used || row.num_tokens <= num_drafts || end - num_drafts > known ||
      (row.sample && end - num_drafts != known) ||
      slot.last_row == static_cast<int64_t>(next_number_)) {
    Fail("row of {} tokens from {} in slot {} with {}", row.num_tokens, start, row.slot, known);
    return out;
  }
  if (InFlight(slot.draft_row)) Fail("row in slot {}, whose drafts are not settled", row.slot);
  if (InFlight(slot.last_row) && slot.num_proposals > 0) {
    Fail("row in slot {}, whose proposals are not known", row.slot);
  }
  if (InFlight(slot.last_draw)) {
    if (static_cast<int64_t>(next_number_) - slot.last_draw < options_.limits.stages) {
      Fail("row in slot {}, whose token step {} has yet to draw", row.slot, slot.last_draw);
    }
    needs_ = std::max(needs_, steps_in_flight_[slot.last_draw - oldest_].done);
  }
  if (num_drafts > 0 && !row.sample) Fail("drafts in slot {}, which does not sample", row.slot);
  for (const TokenId token : row.drafts) {
    if (token < 0 || token >= options_.limits.vocab_size) Fail("draft {}", token);
    slot.tokens.push_back(token);
    slot.prefixes.push_back(TokenModel::Extend(slot.prefixes.back(), token));
  }
  const int32_t original_context = options_.limits.cache.original_context;
  if (original_context > 0 && !slot.long_rope && end > original_context) {
    Fail("slot {} reaches position {} without a switch after {}", row.slot, end - 1,
         original_context);
  }
  for (int32_t g = 0; g < static_cast<int32_t>(slot.tables.size()); ++g) {
    if (static_cast<int32_t>(slot.tables[g].size()) * block_size_ < end) {
      Fail("slot {} has too few blocks for position {}", row.slot, end - 1);
      return out;
    }
    CheckPast(slot, g, start);
    WriteRow(slot, g, start, row.num_tokens);
  }
  AdvanceState(row.slot, start, end);
  CheckImages(slot, start, end);
  CheckProposals(slot, row, end);
  CheckCandidates(slot, row, end);
  slot.num_candidates = row.num_candidates;
  slot.num_proposals = row.num_proposals;
  slot.last_row = static_cast<int64_t>(next_number_);
  if (row.sample) slot.last_draw = slot.last_row;
  slot.computed = end - num_drafts;
  slot.tokens.resize(known);
  slot.prefixes.resize(known);
  if (num_drafts > 0) {
    slot.draft_row = slot.last_row;
    slot.drafts = row.drafts;
  }
  if (slot.sampling.prompt_logprobs) {
    for (int32_t p = start; p < end && p + 1 < slot.num_prompt; ++p) {
      const TokenId next = slot.tokens[p + 1];
      out.prompt_logprobs.push_back({{next, TokenModel::Logprob(slot.prefixes[p], next)}, {}});
    }
  }
  return out;
}

void FakeExecutor::FindCandidates(const TokenMask* mask, RowOutput* out) const {
  const Slot& slot = slots_[out->slot];
  const SamplingParams& s = slot.sampling;
  const uint64_t prefix = slot.prefixes.back();
  out->health = options_.model.Health(prefix, s.seed.value());
  if (out->health != RowHealth::kOk) return;
  const auto generated = static_cast<int32_t>(slot.tokens.size()) - slot.num_prompt;
  for (TokenId t = 0; t < options_.limits.vocab_size; ++t) {
    const auto& ends = s.stop_token_ids;
    if (mask != nullptr && (mask->allowed[t / 32] >> (t % 32) & 1) == 0) continue;
    if (generated < s.min_tokens && std::find(ends.begin(), ends.end(), t) != ends.end()) continue;
    out->candidates.push_back({t, TokenModel::Logprob(prefix, t)});
  }
  std::stable_sort(out->candidates.begin(), out->candidates.end(),
                   [](const auto& a, const auto& b) { return a.logprob > b.logprob; });
  out->candidates.resize(
      std::min(out->candidates.size(), static_cast<size_t>(slot.num_candidates)));
  if (out->candidates.empty()) out->health = RowHealth::kNoCandidate;
}

bool FakeExecutor::DrawToken(const TokenMask* mask, RowOutput* out) {
  Slot& slot = slots_[out->slot];
  const SamplingParams& s = slot.sampling;
  const uint64_t seed = s.seed.value();
  const uint64_t prefix = slot.prefixes.back();
  const int32_t generated = static_cast<int32_t>(slot.tokens.size()) - slot.num_prompt;
  const auto token = options_.model.Draw(prefix, seed, slot.choice, [&](TokenId t) {
    const auto& ends = s.stop_token_ids;
    if (mask != nullptr && (mask->allowed[t / 32] >> (t % 32) & 1) == 0) return false;
    return generated >= s.min_tokens || std::find(ends.begin(), ends.end(), t) == ends.end();
  });
  const RowHealth health = token ? options_.model.Health(prefix, seed) : RowHealth::kNoCandidate;
  if (health == RowHealth::kOk) {
    out->tokens.push_back(*token);
    if (s.logprobs) out->logprobs.push_back({{*token, TokenModel::Logprob(prefix, *token)}, {}});
  } else if (!out->tokens.empty()) {
    return false;
  }
  out->health = health;
  slot.tokens.push_back(token.value_or(0));
  slot.prefixes.push_back(TokenModel::Extend(prefix, slot.tokens.back()));
  return health == RowHealth::kOk;
}

}  // namespace tokamak::sim
