// The fields of a request that make a conversation: "messages", "tools", "tool_choice",
// "add_generation_prompt", "chat_template_kwargs", "reasoning_effort".
#pragma once

#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "server/openai/json_fields.h"
#include "server/openai/other_fields.h"
#include "tokamak/status.h"

namespace tokamak {

// Checks all of them except the template's variables; errors are in fields.status(). Returns
// whether the model is told about the tools.
bool CheckConversation(const JsonReader& fields, ChatInput& conversation);

// A tool whose calls keep to its schema.
struct HeldTool {
  size_t index = 0;  // in the field "tools"
  std::string name;
  std::string schema;  // JSON Schema of its arguments
};
// Returns those of a checked body. Sets *must_call if the answer must call one of them. Otherwise
// they are all of its tools if one of them is strict or the answer is `structured`, and none if
// not; those that are not strict take any object.
std::vector<HeldTool> HeldTools(const JsonValue& body, bool structured, bool* must_call);

// Reads the conversation of a body that passed CheckConversation. `spellings` tells where the
// client put the fields.
Status ReadConversation(const JsonValue& body, const FieldSpellings& spellings, bool use_tools,
                        ChatInput& conversation);

}  // namespace tokamak
