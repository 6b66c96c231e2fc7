// The fields of a request that make a conversation: "messages", "tools", "tool_choice",
// "add_generation_prompt", "chat_template_kwargs", "reasoning_effort", "mm_processor_kwargs".
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_template.h"
#include "server/openai/json_fields.h"
#include "server/openai/other_fields.h"
#include "tokamak/model_info.h"
#include "tokamak/status.h"

namespace tokamak {

// Checks all of them except the template's variables and what URLs hold; errors are in
// fields.status(). `images`: those that the model takes, if any. Returns whether the model is told
// about the tools.
bool CheckConversation(const JsonReader& fields, const std::optional<ImageInfo>& images,
                       ChatInput& conversation);

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

// An image of a conversation.
struct MessageImage {
  std::string path;        // of its URL: "messages[0].content[1].image_url.url"
  std::string url = {};    // file:, http: or https:; empty: a data: URL, whose bytes are here
  std::string bytes = {};  // of the image's file
  ImageOptions options = {};
  std::shared_ptr<const void> counted = {};  // as WebClient::File

  bool on_web() const;  // and not fetched yet
};

// Returns the error of an image at `path`. An image beyond a limit is no prompt that does not fit.
Status ImageError(std::string_view path, const Status& status);

// Reads the conversation of a body that passed CheckConversation, and its images in their order,
// which leave parts of the type "image". `spellings` tells where the client put the fields.
Status ReadConversation(const JsonValue& body, const FieldSpellings& spellings, bool use_tools,
                        const std::optional<ImageInfo>& images, ChatInput& conversation,
                        std::vector<MessageImage>& read);

}  // namespace tokamak
