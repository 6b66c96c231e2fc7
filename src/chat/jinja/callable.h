// What templates can call, and the state of a loop.
#pragma once

#include "chat/jinja/value.h"

namespace tokamak::jinja {

class Runtime;
struct CallArgs;
struct MacroNode;
struct ForNode;
struct Scope;

// Of a value: a string's strip, a dictionary's items.
using Method = Value (*)(Runtime& runtime, const Value& self, CallArgs& args);
using GlobalFunction = Value (*)(Runtime& runtime, CallArgs& args);

// Exactly one of the three is set.
struct CallableObject : Object {
  const MacroNode* macro = nullptr;
  Scope* scope = nullptr;  // where the macro was defined; null: the template itself
  Method method = nullptr;
  Value receiver;
  GlobalFunction function = nullptr;
};

// `loop` in the body of a for.
struct LoopObject : Object {
  Value source;  // a list: what is left to run over starts at `position`
  size_t position = 0;
  int64_t index0 = -1;
  int64_t length = -1;  // -1: a filter decides it, and was not asked yet
  int64_t depth0 = 0;   // of recursive loops
  bool has_pending = false;
  Value pending;  // an item that was looked at ahead of its turn
  Value previous, current;
  Value changed = Value::Missing();  // the last arguments of loop.changed
  const ForNode* node = nullptr;
  Scope* scope = nullptr;  // around the loop
  bool filtered = false;   // items are still to be asked
};

}  // namespace tokamak::jinja
