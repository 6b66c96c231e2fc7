// Expressions over bytes, and their derivatives.
//
// One algebra stands for regular expressions, for context-free grammars and for the state of a
// matcher. The derivative of an expression by a byte matches what may follow that byte
// (Brzozowski, "Derivatives of Regular Expressions", 1964); an expression may refer to a rule by
// number, so a concatenation is also a parser's stack: its head is what the lexer is in, its tail
// what the parser expects after it. Equal expressions have equal numbers, so that alternatives
// merge and derivatives are computed once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tokamak::grammar {

using Expr = int32_t;
inline constexpr Expr kNothing = 0;  // matches no text at all
inline constexpr Expr kEmpty = 1;    // matches the empty text

inline constexpr uint32_t kNoLimit = UINT32_MAX;

// Bit b % 64 of word b / 64 is byte b.
using ByteSet = std::array<uint64_t, 4>;

enum class Op : uint8_t {
  kNothing,
  kEmpty,
  kSet,     // a: index of a ByteSet
  kConcat,  // a, then b
  kOr,      // b operands from a on
  kAnd,     // likewise; operands have no rules
  kNot,     // a; has no rules
  kRepeat,  // a, from b to c times
  kRule,    // a: number of the rule
};

struct ExprNode {
  Op op;
  bool nullable;   // matches the empty text; of rules known once Seal has run
  uint16_t depth;  // bounds the recursion of Derive within a rule
  uint32_t a, b, c;

  friend bool operator==(const ExprNode&, const ExprNode&) = default;
};

class ExprPool {
 public:
  // Why the pool cannot be used, or an expression became kNothing that should not have. The first
  // reason counts.
  enum class Trouble {
    kNone,
    kTooMuchWork,
    kTooDeep,
    kLeftRecursion,  // a rule may start with itself
  };

  ExprPool();

  Expr Bytes(const ByteSet& set);
  Expr Byte(uint8_t byte) { return ByteRange(byte, byte); }
  Expr ByteRange(uint8_t first, uint8_t last);
  Expr OneOf(std::string_view bytes);
  Expr Literal(std::string_view text);
  Expr Concat(Expr head, Expr tail);
  Expr Concat(std::span<const Expr> parts);
  Expr Concat(std::initializer_list<Expr> parts) {
    return Concat(std::span(parts.begin(), parts.size()));
  }
  Expr Or(std::vector<Expr> terms) { return Or(std::move(terms), 0); }
  Expr And(const std::vector<Expr>& terms);
  Expr Not(Expr inner);
  Expr Repeat(Expr inner, uint32_t min, uint32_t max);
  Expr Optional(Expr inner) { return Repeat(inner, 0, 1); }
  Expr Anything() const { return anything_; }  // any bytes
  Expr Star(Expr inner) { return Repeat(inner, 0, kNoLimit); }

  // Rules are numbered; a body may be set after other expressions refer to the rule.
  Expr NewRule();
  void SetRule(Expr rule, Expr body);

  // Ends construction with `root`: finds which rules match the empty text and the classes of bytes
  // that no set tells apart, and drops alternatives that match nothing. Returns the root's
  // replacement; kNothing if it matches no text.
  Expr Seal(Expr root);

  // After Seal only. Derivatives that match nothing are kNothing, so every other expression can be
  // completed.
  Expr Derive(Expr expr, uint8_t byte_class) {
    const int32_t row = row_of_[expr];
    const Expr known = row < 0 ? -1 : rows_[static_cast<size_t>(row) + byte_class];
    return known < 0 ? DeriveAndKeep(expr, byte_class) : known;
  }
  // The derivative by all bytes of a text, one after another.
  Expr Derive(Expr expr, std::string_view text);
  const std::array<uint8_t, 256>& classes() const { return class_of_; }
  // One byte of each class.
  const std::vector<uint8_t>& class_bytes() const { return class_bytes_; }

  const ExprNode& operator[](Expr expr) const { return nodes_[expr]; }
  const Expr* operands(const ExprNode& node) const { return &operands_[node.a]; }
  bool nullable(Expr expr) const { return nodes_[expr].nullable; }

  // Copies an expression of a pool that began as a copy of this one, exactly as it is: the same
  // derivatives take the same work.
  Expr Import(const ExprPool& other, Expr expr);

  // Work is counted in operands looked at; memory follows it.
  void Allow(uint64_t work) { limit_ = work_ + work; }
  uint64_t work() const { return work_; }
  uint64_t work_left() const { return limit_ - std::min(work_, limit_); }
  Trouble trouble() const { return trouble_; }
  void ClearTrouble() { trouble_ = Trouble::kNone; }
  size_t bytes() const;

 private:
  Expr Or(std::vector<Expr> terms, int depth);
  Expr Add(const ExprNode& node);
  Expr AddConcat(Expr head, Expr tail);
  Expr AddList(Op op, const std::vector<Expr>& terms);
  void Rehash();
  uint64_t HashOf(const ExprNode& node) const;
  bool Same(const ExprNode& a, const ExprNode& b) const;
  bool Spend(uint64_t work);
  void Fail(Trouble trouble);
  void FlattenInto(Op op, const std::vector<Expr>& terms, std::vector<Expr>& out);
  void MergeRepeats(std::vector<Expr>& terms);
  void FactorHeads(std::vector<Expr>& terms, int depth);
  Expr DeriveAndKeep(Expr expr, uint8_t byte_class);
  Expr DeriveNew(Expr expr, uint8_t byte_class);
  Expr DeriveConcat(Expr expr, uint8_t byte_class);
  Expr DeriveAnd(Expr expr, uint8_t byte_class);
  bool CanMatch(Expr conjunction);
  void FindNullable();
  void FindClasses();
  std::vector<bool> FindProductive();
  Expr DropUnproductive(const std::vector<bool>& productive, Expr root);
  void FindLeftRecursion();
  template <typename F>
  void ForEachLeft(Expr expr, F&& f) const;
  template <typename Map>
  Expr Rebuild(const ExprNode& node, const ExprPool& from, Map&& map);
  template <typename Map>
  Expr Copy(const ExprNode& node, const ExprPool& from, Map&& map);

  std::vector<ExprNode> nodes_;
  std::vector<ByteSet> sets_;
  std::vector<Expr> operands_;
  std::vector<Expr> bodies_;     // by rule
  std::vector<Expr> rule_expr_;  // by rule
  std::vector<Expr> table_;      // open addressing; -1: free
  std::array<uint8_t, 256> class_of_{};
  std::vector<uint8_t> class_bytes_;
  std::vector<int32_t> row_of_;  // by expression: where its derivatives start in rows_, or -1
  std::vector<Expr> rows_;       // derivatives by class; -1: unknown
  // Like row_of_, of conjunctions: derivatives of which is not known whether they match anything.
  std::vector<int32_t> search_row_of_;
  std::vector<uint8_t> matches_;  // by expression, for conjunctions: 0 unknown, 1 yes, 2 no
  Expr anything_ = kNothing;
  uint64_t work_ = 0;
  uint64_t limit_ = UINT64_MAX;
  Trouble trouble_ = Trouble::kNone;
};

}  // namespace tokamak::grammar
