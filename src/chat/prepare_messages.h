// From the messages that OpenAI's API carries to those that a template was written for.
//
// The API has a tool call's arguments as a string of JSON; most templates write them with tojson
// and would encode the string once more, others print what they get. The API's content is null
// beside tool calls; many templates fail on that, some print "None", and some show a tool call only
// then. Templates do not say which they are, so each is tried once with a conversation of its own.
#pragma once

#include "chat/chat_template.h"
#include "chat/jinja/value.h"
#include "tokamak/status.h"

namespace tokamak {

// The form of messages that a template wants.
struct TemplateTraits {
  bool arguments_as_object = true;   // else as the string that came
  bool null_content = false;         // keep null beside tool calls; else it becomes ""
  bool content_as_parts = false;     // texts as [{"type": "text", "text": ...}]
  bool one_text_with_calls = false;  // refuses content and reasoning beside the same tool calls
};

// Renders a few conversations with a tool call, and looks at what came of them.
TemplateTraits ProbeTemplate(const ChatTemplate& chat);

// The messages as the template wants them. What is not a list of dictionaries stays as it is, and
// so do arguments that are not a JSON object.
jinja::Value PrepareMessages(const jinja::Value& messages, const TemplateTraits& traits);

// The entries of an object as variables of the template. kInvalidArgument when it is none, and for
// names that the caller sets: "messages", "tools", "documents", "add_generation_prompt".
Status AddVariables(const jinja::Value& object, ChatInput& input);

}  // namespace tokamak
