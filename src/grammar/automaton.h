// A grammar as an automaton over bytes whose states are found on the way, and the masks of states.
#pragma once

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
class Automaton {
 public:
  Automaton(const Grammar::Impl& grammar, std::shared_ptr<const Vocabulary> vocabulary);

  const Vocabulary* vocabulary() const { return vocabulary_.get(); }

  // The work that a call may do: of a look ahead less, because the answer does not depend on it.
  static constexpr uint64_t kWork = 400'000;  // about 0.1 s
  static constexpr uint64_t kWorkAhead = kWork / 4;

  // See Matcher::FillMask.
  Status FillMask(Expr state, std::span<uint32_t> allowed, uint64_t work = kWork);
  // The state after `bytes`; kNothing if they do not fit, or need too much work.
  Expr Advance(Expr state, std::string_view bytes, uint64_t work = kWork);
  bool nullable(Expr state) const { return pool_.nullable(state); }
  // Whether any byte may follow.
  bool CanGoOn(Expr state);
  // See Matcher::ForcedText; a look ahead.
  std::string ForcedText(Expr state, size_t most);
  // Forgets what was found if it takes too much memory. Returns the state's new number.
  Expr Trim(Expr state);

  size_t bytes() const;
  // Whether the next matcher may go on with what was found. If one call came near the bound on work
  // it may not, or it would depend on earlier answers whether another one fails.
  bool reusable() const;

 private:
  // The largest set whose tokens are all allowed in `state`, without a look at what follows the
  // part of the grammar that it is in.
  PlainText Covered(Expr state);
  bool Covers(Expr state, Expr text);
  bool in_trouble() const { return pool_.trouble() != ExprPool::Trouble::kNone; }
  // Ends a call that may do so much work.
  void EndCall(uint64_t work);
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
  bool hard_ = false;             // a call came near the bound
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
