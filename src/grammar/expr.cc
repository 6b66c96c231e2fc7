#include "grammar/expr.h"

#include <algorithm>

#include <tuple>
#include <utility>

#include "base/check.h"

namespace tokamak::grammar {

namespace {

constexpr uint16_t kMaxDepth = 400;
// Alternatives that begin alike are merged to this depth at once; derivatives merge the rest.
constexpr int kMaxFactorDepth = 16;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

uint32_t SaturatingMultiply(uint32_t a, uint32_t b) {
  if (a == 0 || b == 0) return 0;
  const uint64_t product = uint64_t{a} * b;
  return product >= kNoLimit ? kNoLimit : static_cast<uint32_t>(product);
}

}  // namespace

ExprPool::ExprPool() {
  table_.assign(64, -1);
  nodes_ = {{Op::kNothing, false, 0, 0, 0, 0}, {Op::kEmpty, true, 0, 0, 0, 0}};
  row_of_.assign(2, -1);
  search_row_of_.assign(2, -1);
  matches_.assign(2, 0);
  anything_ = Star(ByteRange(0, 255));
}

bool ExprPool::Spend(uint64_t work) {
  work_ += work;
  if (work_ <= limit_) return true;
  Fail(Trouble::kTooMuchWork);
  return false;
}

void ExprPool::Fail(Trouble trouble) {
  if (trouble_ == Trouble::kNone) trouble_ = trouble;
}

uint64_t ExprPool::HashOf(const ExprNode& node) const {
  uint64_t hash = Mix(static_cast<uint64_t>(node.op), node.b);
  if (node.op == Op::kSet) {
    for (const uint64_t word : sets_[node.a]) hash = Mix(hash, word);
  } else if (node.op == Op::kOr || node.op == Op::kAnd) {
    for (uint32_t i = 0; i < node.b; ++i) hash = Mix(hash, operands_[node.a + i]);
  } else {
    hash = Mix(Mix(hash, node.a), node.c);
  }
  return hash;
}

bool ExprPool::Same(const ExprNode& a, const ExprNode& b) const {
  if (a.op != b.op || a.b != b.b) return false;
  if (a.op == Op::kSet) return sets_[a.a] == sets_[b.a];
  if (a.op == Op::kOr || a.op == Op::kAnd) {
    return std::equal(&operands_[a.a], &operands_[a.a] + a.b, &operands_[b.a]);
  }
  return a.a == b.a && a.c == b.c;
}

void ExprPool::Rehash() {
  table_.assign(table_.size() * 2, -1);
  for (Expr i = 2; i < static_cast<Expr>(nodes_.size()); ++i) {
    size_t slot = HashOf(nodes_[i]) & (table_.size() - 1);
    while (table_[slot] >= 0) slot = (slot + 1) & (table_.size() - 1);
    table_[slot] = i;
  }
}

// Returns the node's number. A new node keeps the set or the operands that were appended for it;
// for a known one AddList and Bytes remove them.
Expr ExprPool::Add(const ExprNode& node) {
  if (!Spend(1)) return kNothing;
  if (node.depth > kMaxDepth) {
    Fail(Trouble::kTooDeep);
    return kNothing;
  }
  size_t slot = HashOf(node) & (table_.size() - 1);
  for (; table_[slot] >= 0; slot = (slot + 1) & (table_.size() - 1)) {
    if (Same(nodes_[table_[slot]], node)) return table_[slot];
  }
  const auto number = static_cast<Expr>(nodes_.size());
  table_[slot] = number;
  nodes_.push_back(node);
  row_of_.push_back(-1);
  search_row_of_.push_back(-1);
  matches_.push_back(0);
  if (nodes_.size() * 2 > table_.size()) Rehash();
  return number;
}

Expr ExprPool::AddList(Op op, const std::vector<Expr>& terms) {
  if (!Spend(terms.size())) return kNothing;
  ExprNode node{op,
                op == Op::kAnd,
                0,
                static_cast<uint32_t>(operands_.size()),
                static_cast<uint32_t>(terms.size()),
                0};
  for (const Expr term : terms) {
    node.depth = std::max<uint16_t>(node.depth, nodes_[term].depth + 1);
    const bool nullable = nodes_[term].nullable;
    node.nullable = op == Op::kAnd ? node.nullable && nullable : node.nullable || nullable;
  }
  operands_.insert(operands_.end(), terms.begin(), terms.end());
  const size_t count = nodes_.size();
  const Expr result = Add(node);
  if (nodes_.size() == count) operands_.resize(node.a);
  return result;
}

Expr ExprPool::Bytes(const ByteSet& set) {
  if (set == ByteSet{}) return kNothing;
  sets_.push_back(set);
  const size_t count = nodes_.size();
  const Expr result = Add({Op::kSet, false, 0, static_cast<uint32_t>(sets_.size() - 1), 0, 0});
  if (nodes_.size() == count) sets_.pop_back();
  return result;
}

Expr ExprPool::ByteRange(uint8_t first, uint8_t last) {
  ByteSet set{};
  for (int b = first; b <= last; ++b) set[b / 64] |= uint64_t{1} << (b % 64);
  return Bytes(set);
}

Expr ExprPool::OneOf(std::string_view bytes) {
  ByteSet set{};
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    set[byte / 64] |= uint64_t{1} << (byte % 64);
  }
  return Bytes(set);
}

Expr ExprPool::Literal(std::string_view text) {
  Expr result = kEmpty;
  for (size_t i = text.size(); i-- > 0;) result = Concat(Byte(text[i]), result);
  return result;
}

Expr ExprPool::AddConcat(Expr head, Expr tail) {
  const ExprNode &h = nodes_[head], &t = nodes_[tail];
  return Add({Op::kConcat, h.nullable && t.nullable, std::max<uint16_t>(h.depth + 1, t.depth),
              static_cast<uint32_t>(head), static_cast<uint32_t>(tail), 0});
}

// A concatenation in the head is turned once, not flattened: its own tail stays one expression that
// other stacks share.
Expr ExprPool::Concat(Expr head, Expr tail) {
  if (head == kNothing || tail == kNothing) return kNothing;
  if (head == kEmpty) return tail;
  if (tail == kEmpty) return head;
  const ExprNode first = nodes_[head];
  if (first.op != Op::kConcat) return AddConcat(head, tail);
  const Expr rest = AddConcat(static_cast<Expr>(first.b), tail);
  return rest == kNothing ? kNothing : AddConcat(static_cast<Expr>(first.a), rest);
}

// From the right, so that tails are shared.
Expr ExprPool::Concat(std::span<const Expr> parts) {
  Expr result = kEmpty;
  for (size_t i = parts.size(); i-- > 0;) result = Concat(parts[i], result);
  return result;
}

void ExprPool::FlattenInto(Op op, const std::vector<Expr>& terms, std::vector<Expr>& out) {
  for (const Expr term : terms) {
    const ExprNode& node = nodes_[term];
    if (node.op == op) {
      out.insert(out.end(), operands(node), operands(node) + node.b);
    } else {
      out.push_back(term);
    }
  }
}

// Joins x{a,b} t and x{c,d} t where the counts meet. Without this, a chain like x{0,9} x{0,9} has
// ever more alternatives.
void ExprPool::MergeRepeats(std::vector<Expr>& terms) {
  struct Counted {
    uint32_t inner;
    Expr tail;
    uint32_t min, max;
    bool operator<(const Counted& other) const {
      return std::tie(inner, tail, min, max) <
             std::tie(other.inner, other.tail, other.min, other.max);
    }
  };
  std::vector<Counted> counted;
  const auto repeat_of = [&](Expr term) -> const ExprNode* {
    const ExprNode& node = nodes_[term];
    const ExprNode& head = node.op == Op::kConcat ? nodes_[node.a] : node;
    return head.op == Op::kRepeat ? &head : nullptr;
  };
  if (std::count_if(terms.begin(), terms.end(), [&](Expr t) { return repeat_of(t) != nullptr; }) <
      2) {
    return;
  }
  std::erase_if(terms, [&](Expr term) {
    const ExprNode* head = repeat_of(term);
    if (head == nullptr) return false;
    const Expr tail = nodes_[term].op == Op::kConcat ? static_cast<Expr>(nodes_[term].b) : kEmpty;
    counted.push_back({head->a, tail, head->b, head->c});
    return true;
  });
  std::sort(counted.begin(), counted.end());
  for (size_t i = 0; i < counted.size();) {
    Counted merged = counted[i++];
    for (;
         i < counted.size() && counted[i].inner == merged.inner && counted[i].tail == merged.tail &&
         (merged.max == kNoLimit || counted[i].min <= merged.max + 1);
         ++i) {
      merged.max = std::max(merged.max, counted[i].max);
    }
    terms.push_back(
        Concat(Repeat(static_cast<Expr>(merged.inner), merged.min, merged.max), merged.tail));
  }
}

// Turns h t | h u into h (t | u): one state of the lexer, two stacks. Sets need no such step,
// because their derivative does it.
void ExprPool::FactorHeads(std::vector<Expr>& terms, int depth) {
  std::vector<std::pair<Expr, Expr>> parts;  // head, tail
  for (const Expr term : terms) {
    const ExprNode& node = nodes_[term];
    if (node.op == Op::kConcat && nodes_[node.a].op != Op::kSet) {
      parts.emplace_back(static_cast<Expr>(node.a), static_cast<Expr>(node.b));
    }
  }
  if (parts.empty()) return;
  for (const Expr term : terms) {
    if (nodes_[term].op != Op::kConcat && nodes_[term].op != Op::kSet && term != kEmpty) {
      parts.emplace_back(term, kEmpty);
    }
  }
  std::sort(parts.begin(), parts.end());
  std::vector<Expr> tails, heads, factored;
  for (size_t i = 0, end = 0; i < parts.size(); i = end) {
    tails.clear();
    for (end = i; end < parts.size() && parts[end].first == parts[i].first; ++end) {
      tails.push_back(parts[end].second);
    }
    if (tails.size() < 2) continue;
    heads.push_back(parts[i].first);  // in order
    factored.push_back(Concat(heads.back(), Or(tails, depth + 1)));
  }
  if (heads.empty()) return;
  std::erase_if(terms, [&](Expr term) {
    const ExprNode& node = nodes_[term];
    const Expr head = node.op == Op::kConcat ? static_cast<Expr>(node.a) : term;
    return std::binary_search(heads.begin(), heads.end(), head);
  });
  terms.insert(terms.end(), factored.begin(), factored.end());
}

Expr ExprPool::Or(std::vector<Expr> given, int depth) {
  if (given.size() == 1) return given[0];
  std::vector<Expr> terms;
  FlattenInto(Op::kOr, given, terms);
  if (!Spend(terms.size())) return kNothing;
  ByteSet bytes{};
  int sets = 0;
  Expr last_set = kNothing;
  std::erase_if(terms, [&](Expr term) {
    if (nodes_[term].op != Op::kSet) return term == kNothing;
    for (int i = 0; i < 4; ++i) bytes[i] |= sets_[nodes_[term].a][i];
    ++sets;
    last_set = term;
    return true;
  });
  if (sets > 0) terms.push_back(sets == 1 ? last_set : Bytes(bytes));
  std::sort(terms.begin(), terms.end());
  terms.erase(std::unique(terms.begin(), terms.end()), terms.end());
  if (std::binary_search(terms.begin(), terms.end(), anything_)) return anything_;
  if (terms.size() > 1 && depth < kMaxFactorDepth) {
    MergeRepeats(terms);
    FactorHeads(terms, depth);
    std::sort(terms.begin(), terms.end());
    terms.erase(std::unique(terms.begin(), terms.end()), terms.end());
  }
  // The empty text goes if another alternative has it.
  if (terms.size() > 1) {
    const auto nullable = [&](Expr term) { return term != kEmpty && nodes_[term].nullable; };
    if (std::any_of(terms.begin(), terms.end(), nullable)) std::erase(terms, kEmpty);
  }
  if (terms.empty()) return kNothing;
  return terms.size() == 1 ? terms[0] : AddList(Op::kOr, terms);
}

// Operands keep their order. Sorted by their numbers, they would differ from pool to pool, and with
// them the work of derivatives, which end with the first operand that matches nothing.
Expr ExprPool::And(const std::vector<Expr>& given) {
  std::vector<Expr> all, terms;
  FlattenInto(Op::kAnd, given, all);
  if (!Spend(all.size())) return kNothing;
  std::vector<Expr> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty() && sorted[0] == kNothing) return kNothing;
  std::vector<bool> taken(sorted.size(), false);
  ByteSet bytes{~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}};
  bool sets = false;
  for (const Expr term : all) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), term) - sorted.begin();
    if (taken[static_cast<size_t>(at)] || term == anything_) continue;
    taken[static_cast<size_t>(at)] = true;
    if (nodes_[term].op != Op::kSet) {
      terms.push_back(term);
      continue;
    }
    sets = true;
    for (int i = 0; i < 4; ++i) bytes[i] &= sets_[nodes_[term].a][i];
  }
  if (sets) {
    const Expr set = Bytes(bytes);
    if (set == kNothing) return kNothing;
    terms.push_back(set);
  }
  if (terms.empty()) return anything_;
  if (terms.size() == 1) return terms[0];
  if (std::find(terms.begin(), terms.end(), kEmpty) != terms.end()) {
    const auto nullable = [&](Expr term) { return nodes_[term].nullable; };
    return std::all_of(terms.begin(), terms.end(), nullable) ? kEmpty : kNothing;
  }
  return AddList(Op::kAnd, terms);
}

Expr ExprPool::Not(Expr inner) {
  if (inner == kNothing) return anything_;
  if (inner == anything_) return kNothing;
  if (nodes_[inner].op == Op::kNot) return static_cast<Expr>(nodes_[inner].a);
  return Add({Op::kNot, !nodes_[inner].nullable, static_cast<uint16_t>(nodes_[inner].depth + 1),
              static_cast<uint32_t>(inner), 0, 0});
}

Expr ExprPool::Repeat(Expr inner, uint32_t min, uint32_t max) {
  if (max == 0 || inner == kEmpty) return kEmpty;
  if (inner == kNothing) return min == 0 ? kEmpty : kNothing;
  const ExprNode node = nodes_[inner];
  if (node.nullable) min = max == 1 ? 1 : 0;
  if (min == 1 && max == 1) return inner;
  // Counts of counts are products if the inner ones leave no gaps.
  if (node.op == Op::kRepeat && node.b <= 1) {
    return Repeat(static_cast<Expr>(node.a), SaturatingMultiply(node.b, min),
                  SaturatingMultiply(node.c, max));
  }
  return Add({Op::kRepeat, min == 0, static_cast<uint16_t>(node.depth + 1),
              static_cast<uint32_t>(inner), min, max});
}

Expr ExprPool::NewRule() {
  const Expr rule = Add({Op::kRule, false, 1, static_cast<uint32_t>(bodies_.size()), 0, 0});
  if (rule == kNothing) return kNothing;
  bodies_.push_back(kNothing);
  rule_expr_.push_back(rule);
  return rule;
}

void ExprPool::SetRule(Expr rule, Expr body) {
  if (rule == kNothing) return;  // out of work
  CHECK(nodes_[rule].op == Op::kRule);
  bodies_[nodes_[rule].a] = body;
}

size_t ExprPool::bytes() const {
  return nodes_.capacity() * (sizeof(ExprNode) + 2 * sizeof(int32_t) + 1) +
         sets_.capacity() * sizeof(ByteSet) +
         sizeof(Expr) * (operands_.capacity() + bodies_.capacity() + rule_expr_.capacity() +
                         table_.capacity() + rows_.capacity());
}

Expr ExprPool::DeriveAndKeep(Expr expr, uint8_t byte_class) {
  const Expr result = DeriveNew(expr, byte_class);
  if (trouble_ != Trouble::kNone) return kNothing;  // not known then
  if (row_of_[expr] < 0) {
    // Memory follows work: another unit pays for about as much as 8 classes take.
    if (!Spend(class_bytes_.size() / 8)) return kNothing;
    row_of_[expr] = static_cast<int32_t>(rows_.size());
    rows_.resize(rows_.size() + class_bytes_.size(), -1);
  }
  rows_[static_cast<size_t>(row_of_[expr]) + byte_class] = result;
  return result;
}

Expr ExprPool::Derive(Expr expr, std::string_view text) {
  for (const char byte : text) {
    expr = Derive(expr, class_of_[static_cast<uint8_t>(byte)]);
    if (expr == kNothing) break;
  }
  return expr;
}

Expr ExprPool::DeriveNew(Expr expr, uint8_t byte_class) {
  if (!Spend(1)) return kNothing;
  const ExprNode node = nodes_[expr];
  const auto a = static_cast<Expr>(node.a);
  switch (node.op) {
    case Op::kNothing:
    case Op::kEmpty:
      return kNothing;
    case Op::kSet: {
      const uint8_t byte = class_bytes_[byte_class];
      return (sets_[node.a][byte / 64] >> (byte % 64) & 1) != 0 ? kEmpty : kNothing;
    }
    case Op::kConcat:
      return DeriveConcat(expr, byte_class);
    case Op::kOr: {
      std::vector<Expr> terms;
      for (uint32_t i = 0; i < node.b; ++i) {
        const Expr term = Derive(operands_[node.a + i], byte_class);
        if (term != kNothing) terms.push_back(term);
      }
      if (!Spend(node.b) || terms.empty()) return kNothing;
      return Or(std::move(terms), 0);
    }
    case Op::kAnd: {
      const Expr result = DeriveAnd(expr, byte_class);
      return nodes_[result].op == Op::kAnd && !CanMatch(result) ? kNothing : result;
    }
    case Op::kNot:
      return Not(Derive(a, byte_class));
    case Op::kRepeat: {
      const Expr first = Derive(a, byte_class);
      if (first == kNothing) return kNothing;
      const uint32_t min = node.b == 0 ? 0 : node.b - 1;
      return Concat(first, Repeat(a, min, node.c == kNoLimit ? kNoLimit : node.c - 1));
    }
    case Op::kRule:
      return Derive(bodies_[node.a], byte_class);
  }
  return kNothing;
}

// Walks along heads that may be empty: a loop, because an object may have many optional members.
Expr ExprPool::DeriveConcat(Expr expr, uint8_t byte_class) {
  std::vector<Expr> terms;
  Expr rest = expr;
  while (nodes_[rest].op == Op::kConcat) {
    const auto head = static_cast<Expr>(nodes_[rest].a), tail = static_cast<Expr>(nodes_[rest].b);
    const Expr first = Derive(head, byte_class);
    if (first != kNothing) terms.push_back(Concat(first, tail));
    if (!nodes_[head].nullable) break;
    rest = tail;
    if (!Spend(1)) return kNothing;
  }
  if (nodes_[rest].op != Op::kConcat) {
    const Expr last = Derive(rest, byte_class);
    if (last != kNothing) terms.push_back(last);
  }
  if (terms.empty()) return kNothing;
  return Or(std::move(terms), 0);
}

// The derivative of a conjunction, even if it matches nothing. It is kept, because searches need it
// again.
Expr ExprPool::DeriveAnd(Expr expr, uint8_t byte_class) {
  if (search_row_of_[expr] < 0) {
    if (!Spend(class_bytes_.size() / 16)) return kNothing;
    search_row_of_[expr] = static_cast<int32_t>(rows_.size());
    rows_.resize(rows_.size() + class_bytes_.size(), -1);
  }
  const size_t index = static_cast<size_t>(search_row_of_[expr]) + byte_class;
  if (rows_[index] >= 0) return rows_[index];
  const ExprNode node = nodes_[expr];
  std::vector<Expr> terms;
  bool none = false;
  for (uint32_t i = 0; i < node.b && !none; ++i) {
    terms.push_back(Derive(operands_[node.a + i], byte_class));
    none = terms.back() == kNothing;
  }
  const Expr result = none ? kNothing : And(terms);
  if (trouble_ == Trouble::kNone) rows_[index] = result;
  return result;
}

// Whether a conjunction matches any text: a search for a derivative that matches the empty one.
// All others (besides negations, which appear in conjunctions only) match a text by construction.
// Uses nothing that other searches found, so its work depends on the conjunction alone.
bool ExprPool::CanMatch(Expr conjunction) {
  if (nodes_[conjunction].nullable) return true;
  if (matches_[conjunction] != 0) return matches_[conjunction] == 1;
  std::vector<Expr> visits = {conjunction};
  std::vector<bool> seen(nodes_.size(), false);
  seen[static_cast<size_t>(conjunction)] = true;
  bool found = false;
  size_t looked_at = 0;
  for (size_t i = 0; i < visits.size() && !found; ++i) {
    // A known derivative takes a small part of the time of a new one.
    constexpr size_t kKnownPerWork = 64;
    looked_at += class_bytes_.size() + 8;
    if (!Spend(looked_at / kKnownPerWork)) return false;
    looked_at %= kKnownPerWork;
    for (size_t c = 0; c < class_bytes_.size() && !found; ++c) {
      const Expr next = DeriveAnd(visits[i], static_cast<uint8_t>(c));
      if (trouble_ != Trouble::kNone) return false;
      if (next == kNothing) continue;
      found = nodes_[next].op != Op::kAnd || nodes_[next].nullable;
      seen.resize(nodes_.size(), false);
      if (seen[static_cast<size_t>(next)]) continue;
      seen[static_cast<size_t>(next)] = true;
      visits.push_back(next);
    }
  }
  matches_[conjunction] = found ? 1 : 2;
  return found;
}

}  // namespace tokamak::grammar
