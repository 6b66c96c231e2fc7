// A grammar as an automaton over bytes whose states are found on the way, and the masks of states.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "grammar/expr.h"
#include "grammar/vocabulary.h"

namespace tokamak::grammar {

// Used by one matcher at a time; what it has found stays for the next one.
//
// Whether a call needs too much work may depend on nothing but the state, or earlier answers and
// looks ahead would decide about an answer's end. So it depends on what the call alone takes, from
// a new automaton on. That is a part of what all calls together took here, if this call was one of
// them: as long as their work stays within the bound, no call has to be looked at alone. Once it
// does not, a new automaton tells (Matcher).
class Automaton {
 public:
  Automaton(const Grammar::Impl& grammar, std::shared_ptr<const Vocabulary> vocabulary);

  const Vocabulary* vocabulary() const { return vocabulary_.get(); }

  // The bound on the work of all calls together, and of one that looks ahead.
  static constexpr uint64_t kWork = 400'000;  // about 0.1 s
  static constexpr uint64_t kWorkAhead = kWork / 4;

  // See Matcher::FillMask.
  Status FillMask(Expr state, std::span<uint32_t> allowed, uint64_t work = kWork);
  // The state after `bytes`; kNothing if they do not fit, or need too much work.
  Expr Advance(Expr state, std::string_view bytes, uint64_t work = kWork);
  bool nullable(Expr state) const { return pool_.nullable(state); }
  // Whether any byte may follow; true if it takes too much work to know.
  bool CanGoOn(Expr state, uint64_t work = kWork);
  // See Matcher::ForcedText; a look ahead.
  std::string ForcedText(Expr state, size_t most);
  // Takes over a state of another automaton of the same grammar. Returns its number here.
  Expr Import(const Automaton& other, Expr state);

  // Whether the last call needed too much work.
  bool failed() const { return failed_; }
  // The work of all calls.
  uint64_t work() const { return pool_.work() - work_before_; }
  size_t bytes() const;
  // Whether the next matcher may go on with what was found.
  bool reusable() const;

 private:
  // The largest set whose tokens are all allowed in `state`, without a look at what follows the
  // part of the grammar that it is in.
  PlainText Covered(Expr state);
  bool Covers(Expr state, Expr text);
  bool in_trouble() const { return pool_.trouble() != ExprPool::Trouble::kNone; }
  void BeginCall(uint64_t work) {
    pool_.Allow(std::min(work, kWork - std::min(kWork, this->work())));
  }
  void EndCall();
  // Returns the number of nodes looked at.
  size_t Walk(Expr state, const std::vector<Vocabulary::Impl::Node>& trie,
              std::span<uint32_t> allowed);

  const Grammar::Impl& grammar_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  ExprPool pool_;
  std::unordered_map<Expr, std::vector<uint32_t>> masks_;  // of states that take long
  std::unordered_map<Expr, PlainText> covered_;
  std::vector<Expr> path_;
  std::vector<int> class_sizes_;  // bytes of each class
  uint64_t work_before_ = 0;      // of the pool, before the first call
  bool failed_ = false;
};

}  // namespace tokamak::grammar

namespace tokamak {

class Grammar::Impl {
 public:
  Impl(grammar::ExprPool pool, grammar::Expr start, grammar::Expr short_text, grammar::Expr text)
      : pool(std::move(pool)), start(start), plain_short(short_text), plain(text) {}

  const grammar::ExprPool pool;  // sealed
  const grammar::Expr start;
  const grammar::Expr plain_short, plain;  // the texts of PlainText

  std::unique_ptr<grammar::Automaton> Borrow(std::shared_ptr<const Vocabulary> vocabulary);
  void GiveBack(std::unique_ptr<grammar::Automaton> automaton);
  size_t idle_bytes();

 private:
  size_t IdleBytes() const REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<std::unique_ptr<grammar::Automaton>> idle_ GUARDED_BY(mutex_);
};

}  // namespace tokamak
