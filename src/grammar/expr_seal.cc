// Seal ends the construction of expressions: it finds the properties that need all rules.
#include <algorithm>
#include <utility>

#include "grammar/expr.h"

namespace tokamak::grammar {

namespace {

constexpr int kMaxRecursion = 1500;  // calls of Derive, one within the other

}  // namespace

Expr ExprPool::Seal(Expr root) {
  FindNullable();
  FindClasses();
  if (trouble_ != Trouble::kNone) return kNothing;
  const std::vector<bool> productive = FindProductive();
  if (trouble_ != Trouble::kNone || !productive[root]) return kNothing;
  root = DropUnproductive(productive, root);
  FindLeftRecursion();
  return root;
}

// Rules may refer to rules that come later, so this repeats until nothing changes. Operands have
// smaller numbers than what they are part of.
void ExprPool::FindNullable() {
  for (bool changed = true; changed && Spend(nodes_.size());) {
    changed = false;
    for (ExprNode& node : nodes_) {
      bool nullable = node.nullable;
      switch (node.op) {
        case Op::kConcat:
          nullable = nodes_[node.a].nullable && nodes_[node.b].nullable;
          break;
        case Op::kOr:
          nullable = std::any_of(operands(node), operands(node) + node.b,
                                 [&](Expr term) { return nodes_[term].nullable; });
          break;
        case Op::kRepeat:
          nullable = node.b == 0 || nodes_[node.a].nullable;
          break;
        case Op::kRule:
          nullable = nodes_[bodies_[node.a]].nullable;
          break;
        default:
          break;  // known since they were made
      }
      changed |= nullable != node.nullable;
      node.nullable = nullable;
    }
  }
}

void ExprPool::FindClasses() {
  class_of_.fill(0);
  class_bytes_ = {0};
  for (const ByteSet& set : sets_) {
    if (class_bytes_.size() == 256 || !Spend(4)) break;
    std::array<std::array<int, 2>, 256> renamed;
    for (auto& pair : renamed) pair = {-1, -1};
    class_bytes_.clear();
    for (int b = 0; b < 256; ++b) {
      int& name = renamed[class_of_[b]][set[b / 64] >> (b % 64) & 1];
      if (name < 0) {
        name = static_cast<int>(class_bytes_.size());
        class_bytes_.push_back(static_cast<uint8_t>(b));
      }
      class_of_[b] = static_cast<uint8_t>(name);
    }
  }
}

// Which expressions match a text of finite length.
std::vector<bool> ExprPool::FindProductive() {
  const size_t count = nodes_.size();  // conjunctions add derivatives
  std::vector<uint8_t> conjunctions(count, 0);
  for (size_t i = 0; i < count; ++i) {
    if (nodes_[i].op == Op::kAnd) conjunctions[i] = CanMatch(static_cast<Expr>(i));
    if (trouble_ != Trouble::kNone) return std::vector<bool>(count, false);
  }
  std::vector<bool> productive(count, false);
  for (bool changed = true; changed && Spend(count);) {
    changed = false;
    for (size_t i = 0; i < count; ++i) {
      if (productive[i]) continue;
      const ExprNode& node = nodes_[i];
      bool now = true;
      switch (node.op) {
        case Op::kNothing:
          now = false;
          break;
        case Op::kConcat:
          now = productive[node.a] && productive[node.b];
          break;
        case Op::kOr:
          now = std::any_of(operands(node), operands(node) + node.b,
                            [&](Expr term) { return productive[term]; });
          break;
        case Op::kAnd:
          now = conjunctions[i] != 0;
          break;
        case Op::kRepeat:
          now = node.b == 0 || productive[node.a];
          break;
        case Op::kRule:
          now = productive[bodies_[node.a]];
          break;
        default:
          break;
      }
      productive[i] = now;
      changed |= now;
    }
  }
  return productive;
}

template <typename Map>
Expr ExprPool::Rebuild(const ExprNode& node, const ExprPool& from, Map&& map) {
  switch (node.op) {
    case Op::kNothing:
      return kNothing;
    case Op::kEmpty:
      return kEmpty;
    case Op::kSet: {
      const ByteSet set = from.sets_[node.a];
      return Bytes(set);
    }
    case Op::kConcat:
      return Concat(map(static_cast<Expr>(node.a)), map(static_cast<Expr>(node.b)));
    case Op::kOr:
    case Op::kAnd: {
      std::vector<Expr> terms;
      for (uint32_t i = 0; i < node.b; ++i) terms.push_back(map(from.operands_[node.a + i]));
      return node.op == Op::kOr ? Or(std::move(terms)) : And(terms);
    }
    case Op::kNot:
      return Not(map(static_cast<Expr>(node.a)));
    case Op::kRepeat:
      return Repeat(map(static_cast<Expr>(node.a)), node.b, node.c);
    case Op::kRule:
      return rule_expr_[node.a];
  }
  return kNothing;
}

// Leaves out what Rebuild simplifies: an expression is as simple as it was when it was made.
template <typename Map>
Expr ExprPool::Copy(const ExprNode& node, const ExprPool& from, Map&& map) {
  switch (node.op) {
    case Op::kConcat:
      return AddConcat(map(static_cast<Expr>(node.a)), map(static_cast<Expr>(node.b)));
    case Op::kOr:
    case Op::kAnd: {
      std::vector<Expr> terms;
      for (uint32_t i = 0; i < node.b; ++i) terms.push_back(map(from.operands_[node.a + i]));
      if (node.op == Op::kOr) std::sort(terms.begin(), terms.end());
      return AddList(node.op, terms);
    }
    case Op::kNot:
    case Op::kRepeat: {
      ExprNode copy = node;
      copy.a = static_cast<uint32_t>(map(static_cast<Expr>(node.a)));
      return Add(copy);
    }
    default:
      return Rebuild(node, from, map);
  }
}

Expr ExprPool::DropUnproductive(const std::vector<bool>& productive, Expr root) {
  const size_t count = productive.size();
  size_t first = 1;
  while (first < count && productive[first]) ++first;
  if (first == count) return root;
  std::vector<Expr> renamed(count);
  for (size_t i = 0; i < count; ++i) {
    const ExprNode node = nodes_[i];
    if (i < first) {
      renamed[i] = static_cast<Expr>(i);
    } else if (productive[i]) {
      renamed[i] = Rebuild(node, *this, [&](Expr part) { return renamed[part]; });
    }
  }
  for (Expr& body : bodies_) body = renamed[body];
  return renamed[root];
}

// The expressions whose derivatives the derivative of `expr` needs. `f` gets true for a tail, which
// needs no call of its own.
template <typename F>
void ExprPool::ForEachLeft(Expr expr, F&& f) const {
  const ExprNode& node = nodes_[expr];
  switch (node.op) {
    case Op::kConcat:
      f(static_cast<Expr>(node.a), false);
      if (nodes_[node.a].nullable) f(static_cast<Expr>(node.b), true);
      break;
    case Op::kOr:
      for (uint32_t i = 0; i < node.b; ++i) f(operands_[node.a + i], false);
      break;
    case Op::kRepeat:
      f(static_cast<Expr>(node.a), false);
      break;
    case Op::kRule:
      f(bodies_[node.a], false);
      break;
    default:
      break;
  }
}

// A depth-first search for a cycle; on the way it bounds the depth of recursion.
void ExprPool::FindLeftRecursion() {
  constexpr int kOpen = -1;
  std::vector<int> depth(nodes_.size(), 0);  // 0: not seen
  std::vector<std::pair<Expr, bool>> stack;
  for (const Expr rule : rule_expr_) {
    stack.emplace_back(rule, false);
    while (!stack.empty()) {
      const auto [expr, entered] = stack.back();
      if (entered) {
        int most = 0;
        ForEachLeft(expr, [&](Expr left, bool tail) {
          most = std::max(most, depth[left] + (tail ? 0 : 1));
        });
        depth[expr] = std::max(most, 1);
        if (most > kMaxRecursion) Fail(Trouble::kTooDeep);
        stack.pop_back();
        continue;
      }
      if (depth[expr] != 0) {
        stack.pop_back();
        continue;
      }
      if (!Spend(1)) return;
      depth[expr] = kOpen;
      stack.back().second = true;
      bool cycle = false;
      ForEachLeft(expr, [&](Expr left, bool) {
        cycle |= depth[left] == kOpen;
        if (depth[left] == 0) stack.emplace_back(left, false);
      });
      if (cycle) return Fail(Trouble::kLeftRecursion);
    }
  }
}

Expr ExprPool::Import(const ExprPool& other, Expr expr) {
  const auto common = static_cast<Expr>(nodes_.size());
  std::vector<Expr> found;
  std::vector<bool> seen(other.nodes_.size(), false);
  const auto visit = [&](Expr part) {
    if (part < common || seen[part]) return;
    seen[part] = true;
    found.push_back(part);
  };
  visit(expr);
  for (size_t i = 0; i < found.size(); ++i) {
    const ExprNode& node = other.nodes_[found[i]];
    switch (node.op) {
      case Op::kConcat:
        visit(static_cast<Expr>(node.a));
        visit(static_cast<Expr>(node.b));
        break;
      case Op::kOr:
      case Op::kAnd:
        for (uint32_t k = 0; k < node.b; ++k) visit(other.operands_[node.a + k]);
        break;
      case Op::kNot:
      case Op::kRepeat:
        visit(static_cast<Expr>(node.a));
        break;
      default:
        break;
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<Expr> renamed(other.nodes_.size(), kNothing);
  const auto map = [&](Expr part) { return part < common ? part : renamed[part]; };
  for (const Expr part : found) renamed[part] = Copy(other.nodes_[part], other, map);
  return map(expr);
}

}  // namespace tokamak::grammar
