// Callable objects and the state of a loop.
#pragma once

#include "chat/jinja/value.h"

namespace tokamak::jinja {

class Runtime;
struct CallArgs;
struct MacroNode;
struct ForNode;
struct Scope;

// A method of a value, such as a string's strip or a dictionary's items.
using Method = Value (*)(Runtime& runtime, const Value& self, CallArgs& args);
using GlobalFunction = Value (*)(Runtime& runtime, CallArgs& args);

// Exactly one of macro, method and function is set.
struct CallableObject : Object {
  const MacroNode* macro = nullptr;
  Scope* scope = nullptr;  // where the macro was defined; null: at the top level
  Method method = nullptr;
  Value receiver;
  GlobalFunction function = nullptr;
};

// `loop` in the body of a for.
struct LoopObject : Object {
  Value source;  // a list; the remaining items start at `position`
  size_t position = 0;
  int64_t index0 = -1;
  int64_t length = -1;  // -1: unknown until the filter has run on all items
  int64_t depth0 = 0;   // of recursive loops
  bool has_pending = false;
  Value pending;  // an item that was read ahead
  Value previous, current;
  Value changed = Value::Missing();  // the last arguments of loop.changed
  const ForNode* node = nullptr;
  Scope* scope = nullptr;  // the scope around the loop
  bool filtered = false;   // items must still pass the filter
};

}  // namespace tokamak::jinja
