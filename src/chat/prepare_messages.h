// Converts messages from the form of OpenAI's API to the form that a template expects.
//
// The API sends a tool call's arguments as a string of JSON. Most templates apply tojson to them,
// which would encode that string again; others print them as they are. Beside tool calls the API's
// content is null: many templates fail on that, some print "None", and some show tool calls only
// then. Templates do not declare what they expect, so each is probed once with sample
// conversations.
//
// A part {"type": "image_url"} becomes {"type": "image"}, as in transformers. For a template that
// takes only text it becomes the model's placeholder on a line of its own.
#pragma once

#include <string>
#include <string_view>

#include "chat/chat_template.h"
#include "chat/jinja/value.h"
#include "tokamak/status.h"

namespace tokamak {

// The form of messages that a template expects.
struct TemplateTraits {
  bool arguments_as_object = true;   // false: as the string that came
  bool null_content = false;         // keep null beside tool calls; else it becomes ""
  bool content_as_parts = false;     // text becomes [{"type": "text", "text": ...}]
  bool one_text_with_calls = false;  // refuses content together with reasoning beside tool calls
  // Stands for an image in the text of a prompt ("<image>"); empty: unknown, parts stay parts.
  std::string image_placeholder = {};
  bool image_parts = false;  // writes a part {"type": "image"} as the placeholder
};

// Renders sample conversations with a tool call and an image, and inspects the results.
TemplateTraits ProbeTemplate(const ChatTemplate& chat, std::string_view image_placeholder = {});

// Converts the messages. Lists of text parts are joined. Values that are not a list of
// dictionaries, and arguments that are not a JSON object, stay unchanged.
jinja::Value PrepareMessages(const jinja::Value& messages, const TemplateTraits& traits);

// Adds the entries of an object as template variables. kInvalidArgument if it is not an object, and
// for names that the caller sets: "messages", "tools", "documents", "add_generation_prompt".
Status AddVariables(const jinja::Value& object, ChatInput& input);

}  // namespace tokamak
