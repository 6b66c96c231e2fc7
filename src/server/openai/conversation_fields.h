// The fields of a request that make a conversation: "messages", "tools", "tool_choice",
// "add_generation_prompt", "chat_template_kwargs", "reasoning_effort".
#pragma once

#include <string>

#include "chat/chat_template.h"
#include "server/openai/json_fields.h"
#include "server/openai/other_fields.h"
#include "tokamak/status.h"

namespace tokamak {

// Checks them all but the template's variables; errors are in fields.status(). Returns whether the
// model is to be told of the tools.
bool CheckConversation(Fields& fields, ChatInput& conversation);

// From a body that CheckConversation had nothing against. It is parsed once more because templates
// see the order of keys. `spellings` says where in it the client put the fields.
Status ReadConversation(const std::string& body, const FieldSpellings& spellings, bool use_tools,
                        ChatInput& conversation);

}  // namespace tokamak
