#include "runner/testing/driver.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"

namespace tokamak::testing {
namespace {

// Allocates one tier's blocks in random order, with reference counts.
class BlockNumbers {
 public:
  BlockNumbers(int32_t count, std::mt19937_64& random) : readers_(static_cast<size_t>(count), 0) {
    free_.resize(static_cast<size_t>(count));
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), random);
  }
  BlockId Take() {
    CHECK_MSG(!free_.empty(), "the test's pool is too small");
    const BlockId block = free_.back();
    free_.pop_back();
    readers_[static_cast<size_t>(block)] = 1;
    return block;
  }
  BlockId Share(BlockId block) {
    ++readers_[static_cast<size_t>(block)];
    return block;
  }
  void Drop(BlockId block) {
    if (block != kNoBlock && --readers_[static_cast<size_t>(block)] == 0) {
      free_.insert(free_.begin(), block);
    }
  }
  size_t num_free() const { return free_.size(); }

 private:
  std::vector<int> readers_;
  std::vector<BlockId> free_;
};

struct Sequence {
  size_t request = 0;
  SequenceSlotId slot = -1;
  std::vector<TokenId> tokens;  // known from outputs
  int32_t known = 0;            // including tokens that steps in flight draw
  int32_t computed = 0;
  int in_flight = 0;
  int32_t num_drafts = 0;                          // in flight
  bool awaits_proposals = false;                   // of a row in flight
  std::vector<TokenId> proposals;                  // for the next row
  uint64_t admitted = 0;                           // the step
  std::vector<std::vector<BlockId>> block_tables;  // per group
  std::vector<std::vector<BlockId>> host;          // swapped-out blocks, by table entry
};

class Driver {
 public:
  Driver(Runner& runner, const std::vector<DriverRequest>& requests, const DriverOptions& options)
      : runner_(runner),
        requests_(requests),
        options_(options),
        random_(options.seed),
        device_(runner.cache().num_device_blocks, random_),
        host_(runner.cache().num_host_blocks, random_),
        results_(requests.size()) {
    for (SequenceSlotId slot = 0; slot < runner.shape().max_seqs; ++slot)
      free_slots_.push_back(slot);
    std::shuffle(free_slots_.begin(), free_slots_.end(), random_);
    if (runner.cache().sequence_state) {
      options_.swap = options_.share = 0;
      options_.drafts = nullptr;
    }
    CHECK(runner_.Reset().ok());
  }

  std::vector<DriverResult> Run(DriverCounts* counts) {
    while (next_ < requests_.size() || !running_.empty() || !waiting_.empty()) {
      StepInput step{.number = number_++};
      Retire(&step);
      MaybePreempt(&step);
      Fill(&step);
      AddRows(&step);
      Check(runner_.Submit(step));
      Sample(step);
      in_flight_.push_back(std::move(step.rows));
      ++counts_.steps;
      const auto depth = static_cast<size_t>(runner_.shape().depth);
      while (in_flight_.size() >= depth || (!in_flight_.empty() && Chance(0.2))) Wait();
    }
    while (!in_flight_.empty()) Wait();
    CHECK(device_.num_free() == static_cast<size_t>(runner_.cache().num_device_blocks));
    if (counts != nullptr) *counts = counts_;
    return results_;
  }

 private:
  static void Check(const Status& status) { CHECK_MSG(status.ok(), status.ToString()); }
  bool Chance(double p) { return std::uniform_real_distribution<double>()(random_) < p; }
  const DriverRequest& Request(const Sequence& s) const { return requests_[s.request]; }
  int32_t PromptSize(const Sequence& s) const {
    return static_cast<int32_t>(Request(s).prompt.size());
  }
  bool Scheduled(const Sequence& s) const {
    return results_[s.request].failed ||
           (s.known - PromptSize(s) >= Request(s).num_generated && s.computed >= PromptSize(s));
  }
  const CacheGroup& Group(size_t g) const { return runner_.cache().groups[g]; }

  TokenMask MakeMask(const Sequence& s, int32_t draw, int32_t generated) const;
  void Sample(const StepInput& step);
  void Wait();
  void Retire(StepInput* step);
  void MaybePreempt(StepInput* step);
  void SwapOut(Sequence* s, StepInput* step);
  void Release(Sequence* s, StepInput* step);
  void Fill(StepInput* step);
  void Admit(Sequence s, StepInput* step);
  void ShareBlocks(Sequence* s, StepInput* step);
  void SwapIn(Sequence* s, StepInput* step);
  void AddRows(StepInput* step);
  // Encodes the images that a row of `most` positions shows, as far as the encoder cache has room
  // beside those of other rows. Returns how many positions the row can compute.
  // `left`: positions that the step has room for. If images must be whole, the row takes all of one
  // or none.
  int32_t UseImages(const Sequence& s, int32_t most, int32_t left, StepInput* step);
  bool ForgetUnused(StepInput* step);
  std::vector<TokenId> MakeDrafts(const Sequence& s, int32_t most);
  std::vector<TokenId> TakeProposals(Sequence* s, int32_t most);
  void Settle(Sequence* s, size_t num_tokens);
  // A draft model has only whole blocks of an answer, and only of steps that have been waited for.
  int32_t Shareable(const Sequence& s, int32_t positions) const {
    if (options_.proposals == 0) return positions;
    const int32_t block_size = Group(0).block_size;
    return std::min(positions, static_cast<int32_t>(s.tokens.size()) - 1) / block_size * block_size;
  }
  void Extend(Sequence* s, int32_t positions, StepInput* step);

  Runner& runner_;
  const std::vector<DriverRequest>& requests_;
  DriverOptions options_;
  std::mt19937_64 random_;
  BlockNumbers device_;
  BlockNumbers host_;
  std::vector<SequenceSlotId> free_slots_;
  std::vector<Sequence> running_;
  std::vector<Sequence> waiting_;  // preempted
  std::deque<std::vector<StepRow>> in_flight_;
  std::map<ImageId, int32_t> held_;  // images in the encoder cache: their rows
  std::set<ImageId> used_;           // by the step
  int32_t image_rows_left_ = 0;      // that the step can encode
  size_t next_ = 0;                  // request
  uint64_t number_ = 0;
  uint64_t waited_ = 0;
  // First position of a row, by step and slot.
  std::map<std::pair<uint64_t, SequenceSlotId>, int32_t> first_of_row_;
  DriverCounts counts_;
  std::vector<DriverResult> results_;
};

TokenMask Driver::MakeMask(const Sequence& s, int32_t draw, int32_t generated) const {
  TokenMask mask = {.slot = s.slot, .draw = draw, .allowed = Request(s).allowed};
  const auto by = static_cast<size_t>(generated) % mask.allowed.size();
  std::rotate(mask.allowed.begin(), mask.allowed.begin() + static_cast<std::ptrdiff_t>(by),
              mask.allowed.end());
  return mask;
}

void Driver::Sample(const StepInput& step) {
  Check(runner_.Sample(step.number));
  std::vector<TokenMask> masks;
  int64_t num_samples = 0, num_masked = 0;
  for (const StepRow& row : step.rows) {
    num_samples += row.sample ? 1 : 0;
    if (!row.masked) continue;
    const auto s = std::find_if(running_.begin(), running_.end(),
                                [&row](const Sequence& s) { return s.slot == row.slot; });
    // `known` includes the first of the tokens that this row draws.
    const int32_t generated = s->known - 1 - PromptSize(*s);
    for (int32_t draw = 0; draw <= s->num_drafts; ++draw) {
      masks.push_back(MakeMask(*s, draw, generated + draw));
    }
    ++num_masked;
    counts_.masked += s->num_drafts;
  }
  if (masks.empty()) return;
  std::shuffle(masks.begin(), masks.end(), random_);
  if (num_masked < num_samples) ++counts_.mixed;
  Check(runner_.SampleMasked(step.number, std::move(masks)));
}

void Driver::Wait() {
  Result<StepOutput> output = runner_.Wait(waited_++);
  CHECK_MSG(output.ok(), output.status().ToString());
  CHECK(output->rows.size() == in_flight_.front().size());
  for (size_t i = 0; i < output->rows.size(); ++i) {
    const RowOutput& row = output->rows[i];
    const auto s = std::find_if(running_.begin(), running_.end(),
                                [&row](const Sequence& s) { return s.slot == row.slot; });
    CHECK(s != running_.end());
    --s->in_flight;
    if (s->num_drafts > 0) Settle(&*s, row.tokens.size());
    s->proposals = row.proposals;
    if (in_flight_.front()[i].num_proposals > 0) s->awaits_proposals = false;
    DriverResult& result = results_[s->request];
    if (row.health != RowHealth::kOk) result.failed = true;
    if (result.failed) continue;
    for (const TokenId token : row.tokens) {
      s->tokens.push_back(token);
      result.tokens.push_back(token);
    }
    result.logprobs.insert(result.logprobs.end(), row.logprobs.begin(), row.logprobs.end());
    int32_t position = first_of_row_.at({waited_ - 1, row.slot});
    for (const TokenLogprobs& logprobs : row.prompt_logprobs) {
      const auto [it, added] = result.prompt_logprobs.emplace(++position, logprobs);
      CHECK_MSG(added || it->second == logprobs, "recomputed prompt logprobs differ");
    }
  }
  in_flight_.pop_front();
}

// Ends sequences that have all their tokens.
void Driver::Retire(StepInput* step) {
  for (size_t i = 0; i < running_.size();) {
    if (Scheduled(running_[i]) && running_[i].in_flight == 0) {
      Release(&running_[i], step);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

void Driver::Release(Sequence* s, StepInput* step) {
  step->free.push_back(s->slot);
  free_slots_.insert(free_slots_.begin(), s->slot);
  s->proposals.clear();
  for (std::vector<BlockId>& table : s->block_tables) {
    for (const BlockId block : table) device_.Drop(block);
    table.clear();
  }
}

void Driver::MaybePreempt(StepInput* step) {
  const bool recompute = Chance(options_.recompute);
  const bool swap = Chance(options_.swap);
  if ((!recompute && !swap) || running_.empty()) return;
  const size_t i = random_() % running_.size();
  // The sequence's tokens must be known before it is admitted again. The step that admitted it may
  // have copied into its blocks without a row of its own.
  while (running_[i].in_flight > 0 || running_[i].admitted >= waited_) Wait();
  if (Scheduled(running_[i])) return;
  Sequence s = std::move(running_[i]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  if (swap) {
    SwapOut(&s, step);
    ++counts_.swapped;
  } else {
    s.computed = 0;
    ++counts_.recomputed;
  }
  Release(&s, step);
  waiting_.push_back(std::move(s));
}

// Window groups drop blocks that no later query sees.
void Driver::SwapOut(Sequence* s, StepInput* step) {
  s->computed = Shareable(*s, s->computed);
  s->host.assign(s->block_tables.size(), {});
  for (size_t g = 0; g < s->block_tables.size(); ++g) {
    const int32_t size = Group(g).block_size;
    const bool window = Group(g).kind == CacheGroupKind::kWindow;
    const int32_t first = window ? std::max(0, s->computed - Group(g).window + 1) / size : 0;
    for (int32_t i = 0; i * size < s->computed; ++i) {
      if (i < first) {
        s->host[g].push_back(kNoBlock);
        continue;
      }
      s->host[g].push_back(host_.Take());
      step->copies.push_back({.source_tier = Tier::kDevice,
                              .source = s->block_tables[g][static_cast<size_t>(i)],
                              .destination_tier = Tier::kHost,
                              .destination = s->host[g].back()});
    }
  }
}

void Driver::SwapIn(Sequence* s, StepInput* step) {
  for (size_t g = 0; g < s->host.size(); ++g) {
    for (const BlockId block : s->host[g]) {
      s->block_tables[g].push_back(block == kNoBlock ? kNoBlock : device_.Take());
      if (block == kNoBlock) continue;
      step->copies.push_back({.source_tier = Tier::kHost,
                              .source = block,
                              .destination_tier = Tier::kDevice,
                              .destination = s->block_tables[g].back()});
      host_.Drop(block);
    }
  }
  s->host.clear();
}

void Driver::Fill(StepInput* step) {
  while (running_.size() < static_cast<size_t>(options_.max_concurrent) && !free_slots_.empty()) {
    // A sequence preempted in this step would read blocks that its copies have yet to write.
    if (!waiting_.empty() && step->free.empty() && Chance(0.5)) {
      Sequence s = std::move(waiting_.front());
      waiting_.erase(waiting_.begin());
      Admit(std::move(s), step);
    } else if (next_ < requests_.size()) {
      Sequence s;
      s.request = next_++;
      s.tokens = Request(s).prompt;
      s.known = PromptSize(s);
      Admit(std::move(s), step);
    } else {
      return;
    }
  }
}

void Driver::Admit(Sequence s, StepInput* step) {
  s.slot = free_slots_.back();
  s.admitted = step->number;
  free_slots_.pop_back();
  s.block_tables.assign(runner_.cache().groups.size(), {});
  SwapIn(&s, step);
  if (s.computed == 0 && Chance(options_.share)) ShareBlocks(&s, step);
  step->admit.push_back({.slot = s.slot,
                         .tokens = s.tokens,
                         .num_prompt_tokens = PromptSize(s),
                         .num_computed = s.computed,
                         .sampling = Request(s).sampling,
                         .choice = Request(s).choice});
  for (const DriverImage& shown : Request(s).images) {
    step->admit.back().images.push_back(shown.span);
  }
  for (size_t g = 0; g < s.block_tables.size(); ++g) {
    step->append.push_back(
        {.slot = s.slot, .group = static_cast<int32_t>(g), .blocks = s.block_tables[g]});
  }
  running_.push_back(std::move(s));
}

// Shares the longest common prefix with a running sequence; copies its last block if partial.
void Driver::ShareBlocks(Sequence* s, StepInput* step) {
  if (Request(*s).sampling.prompt_logprobs) return;
  for (const Sequence& other : running_) {
    const auto most =
        std::min({other.tokens.size(), s->tokens.size() - 1, static_cast<size_t>(other.computed)});
    const auto differs =
        std::mismatch(other.tokens.begin(),
                      other.tokens.begin() + static_cast<std::ptrdiff_t>(most), s->tokens.begin());
    auto common = static_cast<int32_t>(differs.first - other.tokens.begin());
    if (common > PromptSize(other)) common = Shareable(other, common);
    // Elsewhere rows end inside images, too.
    if (runner_.whole_image_rows() > 0 && common > 0 && Chance(0.5)) {
      common = 1 + static_cast<int32_t>(random_() % static_cast<uint64_t>(common));
    }
    bool whole = common > 0;
    for (const std::vector<BlockId>& table : other.block_tables) {
      whole = whole && std::count(table.begin(), table.end(), kNoBlock) == 0;
    }
    if (!whole) continue;
    for (size_t g = 0; g < s->block_tables.size(); ++g) {
      const int32_t size = Group(g).block_size;
      for (int32_t i = 0; i * size < common; ++i) {
        const BlockId block = other.block_tables[g][static_cast<size_t>(i)];
        if ((i + 1) * size <= common) {
          s->block_tables[g].push_back(device_.Share(block));
        } else {
          s->block_tables[g].push_back(device_.Take());
          step->copies.push_back({.source = block, .destination = s->block_tables[g].back()});
        }
      }
    }
    s->computed = common;
    ++counts_.shared;
    return;
  }
}

void Driver::Extend(Sequence* s, int32_t positions, StepInput* step) {
  for (size_t g = 0; g < s->block_tables.size(); ++g) {
    AppendBlocks append{.slot = s->slot, .group = static_cast<int32_t>(g)};
    while (static_cast<int32_t>(s->block_tables[g].size()) * Group(g).block_size < positions) {
      s->block_tables[g].push_back(device_.Take());
      append.blocks.push_back(s->block_tables[g].back());
    }
    if (!append.blocks.empty()) step->append.push_back(std::move(append));
  }
}

// Drafts for a sequence whose next token is the first to be drawn.
std::vector<TokenId> Driver::MakeDrafts(const Sequence& s, int32_t most) {
  if (options_.drafts == nullptr || s.in_flight > 0 || Chance(0.3)) return {};
  const std::vector<TokenId>& expected = (*options_.drafts)[s.request].tokens;
  const auto generated = static_cast<size_t>(s.known - PromptSize(s));
  const size_t end = std::min(expected.size(), generated + random_() % 6);
  std::vector<TokenId> drafts;
  for (size_t i = generated; i + 1 < end && static_cast<int32_t>(drafts.size()) < most; ++i) {
    drafts.push_back(Chance(0.8) ? expected[i] : s.tokens[random_() % s.tokens.size()]);
  }
  return drafts;
}

std::vector<TokenId> Driver::TakeProposals(Sequence* s, int32_t most) {
  std::vector<TokenId> drafts = std::exchange(s->proposals, {});
  const int32_t left = Request(*s).num_generated - (s->known - PromptSize(*s)) - 1;
  size_t count = std::min(drafts.size(), static_cast<size_t>(std::min(most, left)));
  if (Chance(0.3)) count = random_() % (count + 1);
  drafts.resize(count);
  return drafts;
}

void Driver::Settle(Sequence* s, size_t num_tokens) {
  const auto drawn = static_cast<int32_t>(std::max<size_t>(num_tokens, 1));
  counts_.accepted += drawn - 1;
  counts_.refused += s->num_drafts + 1 - drawn;
  s->computed -= s->num_drafts + 1 - drawn;
  s->known += drawn - 1;
  s->num_drafts = 0;
}

void Driver::AddRows(StepInput* step) {
  int32_t left = runner_.shape().max_step_tokens;
  int32_t drafts_left = runner_.shape().max_step_drafts;
  int32_t proposals_left = drafts_left;
  used_.clear();
  image_rows_left_ = runner_.shape().max_step_image_rows;
  std::shuffle(running_.begin(), running_.end(), random_);
  for (Sequence& s : running_) {
    if (Scheduled(s) || left == 0 || s.num_drafts > 0 || s.awaits_proposals) continue;
    if (s.known - s.computed > 1 && Chance(options_.random_chunks ? 0.2 : 0)) continue;
    int32_t most = std::min({s.known - s.computed, options_.chunk, left});
    if (options_.random_chunks)
      most = 1 + static_cast<int32_t>(random_() % static_cast<uint64_t>(most));
    most = UseImages(s, most, left, step);
    if (most == 0) continue;
    first_of_row_[{step->number, s.slot}] = s.computed;
    s.computed += most;
    left -= most;
    const bool sample = s.computed == s.known && s.known - PromptSize(s) < Request(s).num_generated;
    StepRow row = {.slot = s.slot,
                   .num_tokens = most,
                   .sample = sample,
                   .masked = sample && !Request(s).allowed.empty()};
    const int32_t room = std::min(left, drafts_left);
    if (row.sample && options_.proposals == 0) row.drafts = MakeDrafts(s, room);
    if (row.sample && options_.proposals > 0) {
      // The draft model knows no masks.
      if (!row.masked) row.drafts = TakeProposals(&s, room);
      row.num_proposals =
          std::min(proposals_left,
                   static_cast<int32_t>(random_() % static_cast<uint64_t>(options_.proposals + 1)));
      proposals_left -= row.num_proposals;
      s.awaits_proposals = row.num_proposals > 0;
    }
    s.num_drafts = static_cast<int32_t>(row.drafts.size());
    drafts_left -= s.num_drafts;
    left -= s.num_drafts;
    row.num_tokens += s.num_drafts;
    s.computed += s.num_drafts;
    Extend(&s, s.computed + row.num_proposals, step);
    step->rows.push_back(std::move(row));
    if (sample) ++s.known;
    ++s.in_flight;
  }
  if (Chance(options_.forget)) ForgetUnused(step);
}

int32_t Driver::UseImages(const Sequence& s, int32_t most, int32_t left, StepInput* step) {
  for (const auto& [span, image] : Request(s).images) {
    if (span.end() <= s.computed || span.position >= s.computed + most) continue;
    const int32_t before = std::max(0, span.position - s.computed);
    if (runner_.whole_image_rows() > 0) most = std::max(most, span.end() - s.computed);
    if (most > left) return before;
    counts_.cut_through += span.end() > s.computed + most ? 1 : 0;
    counts_.begun_within += span.position < s.computed ? 1 : 0;
    if (!held_.contains(image.id)) {
      if (image.num_rows > image_rows_left_) return before;
      const auto free = [&] {
        int32_t rows = runner_.shape().max_encoder_rows;
        for (const auto& [id, num_rows] : held_) rows -= num_rows;
        return rows;
      };
      while (free() < image.num_rows) {
        if (!ForgetUnused(step)) return before;
      }
      held_[image.id] = image.num_rows;
      image_rows_left_ -= image.num_rows;
      step->encode.push_back(image);
      ++counts_.encoded;
    }
    used_.insert(image.id);
  }
  return most;
}

bool Driver::ForgetUnused(StepInput* step) {
  std::vector<ImageId> unused;
  for (const auto& [id, num_rows] : held_) {
    if (!used_.contains(id)) unused.push_back(id);
  }
  if (unused.empty()) return false;
  step->forget.push_back(unused[random_() % unused.size()]);
  held_.erase(step->forget.back());
  return true;
}

}  // namespace

std::vector<DriverResult> Drive(Runner& runner, const std::vector<DriverRequest>& requests,
                                const DriverOptions& options, DriverCounts* counts) {
  return Driver(runner, requests, options).Run(counts);
}

}  // namespace tokamak::testing
