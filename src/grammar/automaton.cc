#include "grammar/automaton.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace tokamak {

namespace grammar {

namespace {

// Beyond the grammar's own, of all automata that wait for a matcher.
constexpr size_t kMaxIdleBytes = 4 << 20;
constexpr size_t kMaxMasks = 64;
constexpr size_t kLongWalk = 1000;  // nodes; a shorter one costs less than a cached mask
constexpr size_t kMaxPairs = 2000;  // of states, when texts are compared

}  // namespace

Automaton::Automaton(const Grammar::Impl& grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(grammar),
      vocabulary_(std::move(vocabulary)),
      pool_(grammar.pool),
      path_(vocabulary_->impl().max_depth() + 1),
      class_sizes_(pool_.class_bytes().size(), 0),
      work_before_(pool_.work()) {
  for (const uint8_t byte_class : pool_.classes()) ++class_sizes_[byte_class];
}

void Automaton::EndCall() {
  failed_ = in_trouble();
  pool_.ClearTrouble();
}

Expr Automaton::Advance(Expr state, std::string_view bytes, uint64_t work) {
  BeginCall(work);
  state = pool_.Derive(state, bytes);
  EndCall();
  return state;
}

bool Automaton::CanGoOn(Expr state, uint64_t work) {
  if (state == kEmpty) return false;
  if (!pool_.nullable(state)) return true;
  BeginCall(work);
  bool result = false;
  for (size_t c = 0; c < pool_.class_bytes().size() && !result; ++c) {
    result = pool_.Derive(state, static_cast<uint8_t>(c)) != kNothing;
  }
  EndCall();
  return result || failed_;  // not known then: the next mask tells
}

std::string Automaton::ForcedText(Expr state, size_t most) {
  std::string text;
  BeginCall(kWorkAhead);
  while (text.size() < most && !pool_.nullable(state)) {
    Expr next = kNothing;
    uint8_t byte = 0;
    int num_bytes = 0;  // that may come next
    for (size_t c = 0; c < class_sizes_.size() && num_bytes < 2; ++c) {
      const Expr derived = pool_.Derive(state, static_cast<uint8_t>(c));
      if (derived == kNothing) continue;
      num_bytes += class_sizes_[c];
      byte = pool_.class_bytes()[c];
      next = derived;
    }
    if (num_bytes != 1 || in_trouble()) break;
    text += static_cast<char>(byte);
    state = next;
  }
  EndCall();
  return text;
}

size_t Automaton::bytes() const {
  size_t result = pool_.bytes() + path_.capacity() * sizeof(Expr);
  for (const auto& [state, mask] : masks_) result += mask.capacity() * sizeof(mask[0]);
  return result + covered_.size() * 4 * sizeof(Expr);
}

// An automaton without much work left would soon be replaced.
bool Automaton::reusable() const {
  return work() <= kWork / 2 && bytes() <= 2 * grammar_.pool.bytes() + kMaxIdleBytes / 2;
}

Expr Automaton::Import(const Automaton& other, Expr state) {
  pool_.Allow(UINT32_MAX);
  state = pool_.Import(other.pool_, state);
  CHECK(!in_trouble());
  work_before_ = pool_.work();
  return state;
}

// Whether `state` can go on after every start of a text of `text`.
bool Automaton::Covers(Expr state, Expr text) {
  std::set<std::pair<Expr, Expr>> seen = {{state, text}};
  std::vector<std::pair<Expr, Expr>> pairs = {{state, text}};
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [from, reading] = pairs[i];
    for (size_t c = 0; c < pool_.class_bytes().size(); ++c) {
      const Expr read = pool_.Derive(reading, static_cast<uint8_t>(c));
      if (in_trouble()) return false;  // not known
      if (read == kNothing) continue;
      const Expr next = pool_.Derive(from, static_cast<uint8_t>(c));
      if (next == kNothing || pairs.size() > kMaxPairs) return false;
      if (read != kEmpty && seen.emplace(next, read).second) pairs.emplace_back(next, read);
    }
  }
  return true;
}

PlainText Automaton::Covered(Expr state) {
  const ExprNode node = pool_[state];
  if (node.op == Op::kConcat) return Covered(static_cast<Expr>(node.a));
  const auto known = covered_.find(state);
  if (known != covered_.end()) return known->second;
  PlainText result = PlainText::kNone;
  if (node.op == Op::kOr) {
    for (uint32_t i = 0; i < node.b; ++i) {
      result = std::max(result, Covered(pool_.operands(pool_[state])[i]));
    }
  }
  if (result == PlainText::kNone && Covers(state, grammar_.plain_short)) {
    result = Covers(state, grammar_.plain) ? PlainText::kAll : PlainText::kShort;
  }
  if (!in_trouble()) covered_[state] = result;
  return result;
}

size_t Automaton::Walk(Expr state, const std::vector<Vocabulary::Impl::Node>& trie,
                       std::span<uint32_t> allowed) {
  const std::array<uint8_t, 256>& classes = pool_.classes();
  path_[0] = state;
  size_t looked_at = 0;
  for (size_t i = 0; i < trie.size(); ++looked_at) {
    const Vocabulary::Impl::Node& node = trie[i];
    const Expr from = path_[node.depth - 1];
    const Expr next = pool_.Derive(from, classes[node.byte]);
    if (next == kNothing) {
      i += node.size;
      continue;
    }
    path_[node.depth] = next;
    if (node.token >= 0) allowed[node.token / 32] |= uint32_t{1} << (node.token % 32);
    ++i;
  }
  return looked_at;
}

Status Automaton::FillMask(Expr state, std::span<uint32_t> allowed, uint64_t work) {
  const auto known = masks_.find(state);
  if (known != masks_.end()) {
    std::fill(std::copy(known->second.begin(), known->second.end(), allowed.begin()), allowed.end(),
              0);
    failed_ = false;
    return {};
  }
  BeginCall(work);
  const Vocabulary::Impl& vocabulary = vocabulary_->impl();
  const PlainText covered = Covered(state);
  const std::vector<uint32_t>& plain = vocabulary.Mask(covered);
  std::fill(std::copy(plain.begin(), plain.end(), allowed.begin()), allowed.end(), 0);
  const size_t looked_at = Walk(state, vocabulary.TrieWithout(covered), allowed);
  EndCall();
  if (failed_) {
    std::fill(allowed.begin(), allowed.end(), 0);
    return ResourceExhausted(
        "the grammar is too ambiguous at this point of the answer; simplify it");
  }
  const bool none = std::all_of(allowed.begin(), allowed.end(), [](uint32_t w) { return w == 0; });
  if (none && !pool_.nullable(state)) {
    return InvalidArgument(
        "no token of the vocabulary can continue the answer as its grammar demands");
  }
  if (looked_at >= kLongWalk) {
    if (masks_.size() >= kMaxMasks) masks_.clear();
    masks_[state].assign(allowed.begin(), allowed.begin() + plain.size());
  }
  return {};
}

}  // namespace grammar

std::unique_ptr<grammar::Automaton> Grammar::Impl::Borrow(
    std::shared_ptr<const Vocabulary> vocabulary) {
  {
    MutexLock lock(mutex_);
    for (std::unique_ptr<grammar::Automaton>& automaton : idle_) {
      if (automaton->vocabulary() != vocabulary.get()) continue;
      std::swap(automaton, idle_.back());
      std::unique_ptr<grammar::Automaton> result = std::move(idle_.back());
      idle_.pop_back();
      return result;
    }
  }
  return std::make_unique<grammar::Automaton>(*this, std::move(vocabulary));
}

void Grammar::Impl::GiveBack(std::unique_ptr<grammar::Automaton> automaton) {
  constexpr size_t kMaxIdle = 4;
  if (!automaton->reusable()) return;
  MutexLock lock(mutex_);
  idle_.push_back(std::move(automaton));
  while (idle_.size() > 1 &&
         (idle_.size() > kMaxIdle || IdleBytes() > 2 * pool.bytes() + grammar::kMaxIdleBytes)) {
    idle_.erase(idle_.begin());
  }
}

size_t Grammar::Impl::IdleBytes() const {
  size_t bytes = 0;
  for (const auto& idle : idle_) bytes += idle->bytes();
  return bytes;
}

size_t Grammar::Impl::idle_bytes() {
  MutexLock lock(mutex_);
  return IdleBytes();
}

struct Matcher::State {
  State(std::shared_ptr<const Grammar> from, std::shared_ptr<const Vocabulary> over)
      : grammar(std::move(from)), vocabulary(std::move(over)), now(grammar->impl().start) {}
  // Shares the automaton of `other`.
  explicit State(State* other)
      : grammar(other->grammar), vocabulary(other->vocabulary), now(other->now), ahead_(true) {
    (void)other->automaton();
    borrowed_ = other->borrowed_;
  }

  // Made at the first use, because a request may wait long before that.
  grammar::Automaton& automaton() {
    if (borrowed_ == nullptr) borrowed_ = std::make_shared<Borrowed>(grammar, vocabulary);
    return *borrowed_->automaton;
  }

  // Returns `call(automaton, work)`, a call about `now`.
  template <typename Call>
  auto Run(Call call) {
    if (ahead_) return call(automaton(), grammar::Automaton::kWorkAhead);
    const bool is_new = automaton().work() == 0;
    auto result = call(automaton(), grammar::Automaton::kWork);
    if (is_new || !automaton().failed()) return result;
    Renew();
    return call(automaton(), grammar::Automaton::kWork);
  }

  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<const Vocabulary> vocabulary;
  grammar::Expr now;

 private:
  struct Borrowed {
    Borrowed(std::shared_ptr<const Grammar> from, std::shared_ptr<const Vocabulary> over)
        : grammar(std::move(from)), automaton(grammar->impl().Borrow(std::move(over))) {}
    Borrowed(std::shared_ptr<const Grammar> from, std::unique_ptr<grammar::Automaton> made)
        : grammar(std::move(from)), automaton(std::move(made)) {}
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    ~Borrowed() { grammar->impl().GiveBack(std::move(automaton)); }

    const std::shared_ptr<const Grammar> grammar;
    std::unique_ptr<grammar::Automaton> automaton;
  };

  // Clones keep the old automaton, which has other numbers for states.
  void Renew() {
    auto made = std::make_unique<grammar::Automaton>(grammar->impl(), vocabulary);
    now = made->Import(*borrowed_->automaton, now);
    borrowed_ = std::make_shared<Borrowed>(grammar, std::move(made));
  }

  bool ahead_ = false;  // a clone
  std::shared_ptr<Borrowed> borrowed_;
};

Matcher::Matcher(std::shared_ptr<const Grammar> grammar,
                 std::shared_ptr<const Vocabulary> vocabulary)
    : state_(std::make_unique<State>(std::move(grammar), std::move(vocabulary))) {}
Matcher::Matcher(std::unique_ptr<State> state) : state_(std::move(state)) {}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;

Matcher Matcher::Clone() const { return Matcher(std::make_unique<State>(state_.get())); }

Status Matcher::FillMask(std::span<uint32_t> allowed) {
  return state_->Run([&](grammar::Automaton& automaton, uint64_t work) {
    return automaton.FillMask(state_->now, allowed, work);
  });
}

bool Matcher::Accept(int32_t token) {
  const Vocabulary::Impl& vocabulary = state_->vocabulary->impl();
  if (token < 0 || static_cast<size_t>(token) >= vocabulary.size()) return false;
  const std::string_view bytes = vocabulary.bytes_of(token);
  return !bytes.empty() && AcceptBytes(bytes);
}

bool Matcher::AcceptBytes(std::string_view bytes) {
  const grammar::Expr next = state_->Run([&](grammar::Automaton& automaton, uint64_t work) {
    return automaton.Advance(state_->now, bytes, work);
  });
  if (next == grammar::kNothing) return false;
  state_->now = next;
  return true;
}

bool Matcher::complete() const { return state_->automaton().nullable(state_->now); }
bool Matcher::finished() const {
  return complete() && !state_->Run([&](grammar::Automaton& automaton, uint64_t work) {
    return automaton.CanGoOn(state_->now, work);
  });
}
std::string Matcher::ForcedText(size_t most) const {
  return state_->automaton().ForcedText(state_->now, most);
}

}  // namespace tokamak
