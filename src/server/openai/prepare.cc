#include "server/openai/prepare.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/random_bits.h"
#include "chat/harmony.h"
#include "images/placeholders.h"
#include "server/openai/conversation_fields.h"

namespace tokamak {
namespace {

// The engine gets a copy of a structured output with each prompt, and the I/O thread makes them.
constexpr size_t kMaxStructureBytes = 8 << 20;

Status CheckStructures(const CompletionRequest& request) {
  const std::optional<StructuredOutput>& output = request.sampling.structured_output;
  if (!output) return Status();
  size_t bytes = output->text.size();
  for (const std::string& choice : output->choices) bytes += choice.size();
  for (const std::string& trigger : output->triggers) bytes += trigger.size();
  for (const StructuredOutput::Tag& tag : output->tags) {
    bytes += tag.begin.size() + tag.schema.size() + tag.end.size();
  }
  if (bytes <= kMaxStructureBytes / std::max<size_t>(1, request.prompts.size())) return Status();
  return InvalidArgument(
      "prompt: {} prompts with a structured output of {} bytes for each are more than {} MiB; send "
      "fewer prompts in one request",
      request.prompts.size(), bytes, kMaxStructureBytes >> 20);
}

Result<ChatTemplate> ParseChatTemplate(const std::string& source, const ModelInfo& model) {
  Result<ChatTemplate> chat = ChatTemplate::Parse(source, model.bos_token, model.eos_token);
  if (!chat.ok() && !source.empty()) {
    LogWarning("chat will be refused: {}", chat.status().message());
  }
  return chat;
}

}  // namespace

Preparer::Preparer(ServedModel served, std::string model_id, const RequestLimits& limits,
                   const AnswerParsers& parsers, ImageSources sources)
    : served_(served),
      loaded_(served.loaded),
      model_id_(std::move(model_id)),
      limits_(limits),
      sources_(std::move(sources)),
      sizes_(loaded_.model().vocab_size, [&](int32_t id) { return loaded_.TokenBytes(id); }),
      plain_(MakeChatFormat(loaded_.model().chat_template, parsers)),
      with_tools_(loaded_.model().tool_template.empty()
                      ? nullptr
                      : std::make_unique<ChatFormat>(
                            MakeChatFormat(loaded_.model().tool_template, parsers))) {}

Preparer::ChatFormat Preparer::MakeChatFormat(const std::string& source,
                                              const AnswerParsers& parsers) const {
  ChatFormat format{.chat = ParseChatTemplate(source, loaded_.model()), .traits = {}, .marks = {}};
  const std::optional<ImageInfo>& images = loaded_.model().images;
  if (format.chat.ok()) {
    format.traits = ProbeTemplate(*format.chat, images ? images->placeholder : "");
  }
  const auto tools = ChooseToolFormat(parsers.tool_calls, source);
  format.tools = tools.ok() ? *tools : DetectToolFormat(source);
  const auto reasoning = ChooseReasoningFormat(parsers.reasoning, source);
  format.reasoning = reasoning.ok() ? *reasoning : DetectReasoningFormat(source);
  for (const std::string_view mark : MarksOf(format.tools, format.reasoning)) {
    const auto ids = loaded_.Tokenize(mark, /*add_special=*/false, /*parse_special=*/true);
    if (ids.ok() && ids->size() == 1) format.marks.push_back(ids->front());
  }
  return format;
}

const Preparer::ChatFormat& Preparer::ChatFormatFor(const ChatInput& conversation) const {
  return conversation.tools.is_none() || with_tools_ == nullptr ? plain_ : *with_tools_;
}

Status Preparer::CheckModel(const std::string& model) const {
  if (model.empty() || model == model_id_) return Status();
  return NotFound("model: this server has \"{}\" and no other", model_id_);
}

Status Preparer::CheckIds(const std::string& path, const std::vector<int32_t>& ids) const {
  const int32_t vocab_size = loaded_.model().vocab_size;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return InvalidArgument("{}[{}]: token id {} is outside [0, {})", path, i, ids[i], vocab_size);
    }
  }
  return Status();
}

Status Preparer::CheckLength(std::string_view path, std::string_view text) const {
  const int32_t context = loaded_.model().max_context;
  const size_t least = loaded_.LeastTokens(text);
  if (least <= static_cast<size_t>(context)) return Status();
  return ResourceExhausted(
      "{}: its {} bytes of text are at least {} tokens and do not fit the context of {} tokens",
      path, text.size(), least, context);
}

Result<PreparedCompletion> Preparer::Prepare(bool chat, std::string body) const {
  if (served_.engine == nullptr) {
    return Unimplemented(
        "this model makes embeddings and cannot generate text; use /v1/embeddings");
  }
  PreparedCompletion prepared;
  CompletionRequest& request = prepared.request;
  const ModelInfo& model = loaded_.model();
  const SamplingDefaults& defaults = model.sampling;
  ASSIGN_OR_RETURN(request, chat ? ParseChatRequest(body, defaults, model.images)
                                 : ParseCompletionRequest(body, defaults));
  body = std::string();
  RETURN_IF_ERROR(CheckModel(request.model));
  RETURN_IF_ERROR(CheckSources(request.images));
  RETURN_IF_ERROR(request.spellings.Apply(ApplyLimits(limits_, request)));
  RETURN_IF_ERROR(
      request.spellings.Apply(Validate(request.sampling, model.vocab_size, model.max_logprobs)));
  if (!request.sampling.seed) request.sampling.seed = RandomSeed();  // the same for all prompts
  RETURN_IF_ERROR(chat ? PrepareChat(prepared) : PreparePrompts(prepared));
  RETURN_IF_ERROR(request.spellings.Apply(CheckPromptLogprobs(prepared)));
  RETURN_IF_ERROR(request.spellings.Apply(CheckBeamLogprobs(prepared)));
  if (request.sampling.structured_output) {
    RETURN_IF_ERROR(request.spellings.Apply(
        served_.engine->PrepareStructuredOutput(*request.sampling.structured_output)));
  }
  return prepared;
}

Result<OpenAiEmbeddingRequest> Preparer::Embed(std::string body) const {
  if (served_.embedder == nullptr) {
    return Unimplemented(
        "this model generates text and cannot make embeddings; use /v1/chat/completions or "
        "/v1/completions");
  }
  ASSIGN_OR_RETURN(OpenAiEmbeddingRequest prepared, ParseEmbeddingRequest(body));
  body = std::string();
  RETURN_IF_ERROR(CheckModel(prepared.model));
  RETURN_IF_ERROR(CheckVectors(prepared));
  EmbeddingRequest& request = prepared.engine_request;
  for (size_t i = 0; i < request.inputs.size() && !request.truncate_prompt_tokens; ++i) {
    if (!request.inputs[i].text) continue;
    const std::string path = request.inputs.size() == 1 ? "input" : fmt::format("input[{}]", i);
    RETURN_IF_ERROR(CheckLength(path, *request.inputs[i].text));
  }
  request.parse_special_tokens = true;
  ASSIGN_OR_RETURN(request, served_.embedder->TokenizeInputs(std::move(request)));
  return prepared;
}

Result<Preparer::Rendered> Preparer::Render(ChatInput conversation) const {
  const ChatFormat& format = ChatFormatFor(conversation);
  if (!format.chat.ok()) return format.chat.status();
  conversation.messages = PrepareMessages(conversation.messages, format.traits);
  Result<std::string> text = format.chat->Render(conversation);
  // A template refuses messages, for example because roles must alternate or it takes no tools.
  if (!text.ok()) return text.status().WithContext("messages");
  auto answer_format = std::make_shared<AnswerFormat>();
  if (!conversation.tools.is_none()) {
    answer_format->tools = format.tools;
    answer_format->types = ToolTypes(conversation.tools);
  }
  answer_format->reasoning = format.reasoning;
  answer_format->in_reasoning = OpensReasoning(*text, format.reasoning);
  answer_format->marks_are_told =
      answer_format->harmony() && format.marks.size() == std::size(kHarmonyTokens);
  return Rendered{*std::move(text), std::move(answer_format)};
}

Status Preparer::PrepareChat(PreparedCompletion& prepared) const {
  ChatInput conversation = std::exchange(prepared.request.conversation, {});
  const ChatFormat& format = ChatFormatFor(conversation);
  ASSIGN_OR_RETURN(Rendered rendered, Render(std::move(conversation)));
  RETURN_IF_ERROR(CheckLength("messages", rendered.text));
  if (!prepared.request.images.empty()) {
    rendered.text = WriteOutPlaceholders(*loaded_.model().images, std::move(rendered.text));
  }
  // The template writes special tokens as text, the begin-of-text token included.
  ASSIGN_OR_RETURN(auto ids, loaded_.Tokenize(rendered.text, /*add_special=*/false, true));
  if (ids.empty())
    return InvalidArgument("messages: the model's template turns them into an empty prompt");
  RETURN_IF_ERROR(CheckImages(prepared.request.images.size(), ids));
  prepared.prompts.push_back(std::move(ids));
  RETURN_IF_ERROR(AddThinking(rendered, prepared.request));
  RETURN_IF_ERROR(AddStructure(rendered, prepared.request));
  if (rendered.answer_format->active()) {
    prepared.request.sampling.shown_special_tokens = format.marks;
    prepared.answer_format = std::move(rendered.answer_format);
  }
  return Status();
}

Status Preparer::HoldTools(AnswerFormat& format, CompletionRequest& request) const {
  std::optional<StructuredOutput>& output = request.sampling.structured_output;
  if (format.tools == nullptr) {
    return Unimplemented("tool_choice: the form of this model's tool calls is not known");
  }
  std::vector<std::pair<std::string, std::string>> tools;
  for (const HeldTool& tool : request.held_tools) tools.emplace_back(tool.name, tool.schema);
  const bool parallel = request.parallel_tool_calls;
  auto& spelled = request.spellings.by_name;
  if (output && !request.must_call) {
    const Status added = OrCalls(*format.tools, tools, parallel, *output);
    if (!added.ok()) {
      return Status(added.code(),
                    fmt::format("tools: {}; with structured output, set \"tool_choice\": \"none\"",
                                added.message()));
    }
    format.call_begins = output->CallBegins();
  } else {
    // Calls take the place of a text, but the client learns if its form is wrong.
    if (output) {
      RETURN_IF_ERROR(request.spellings.Apply(served_.engine->PrepareStructuredOutput(*output)));
    }
    Result<StructuredOutput> form =
        request.must_call ? ForceCalls(*format.tools, tools, parallel && tools.size() > 1)
                          : AllowCalls(*format.tools, tools, parallel);
    // OpenAI's client makes every tool strict, so calls of other forms stay free, and the
    // response's header says so.
    if (!form.ok()) return request.must_call ? form.status().WithContext("tool_choice") : Status();
    output = *std::move(form);
    for (const char* place : {"structured_output", "structured_output.triggers[0]"}) {
      spelled.insert_or_assign(place, "tools");
    }
  }
  for (size_t i = 0; i < request.held_tools.size(); ++i) {  // each tool has a tag
    spelled.insert_or_assign(
        fmt::format("structured_output.calls[{}].content", i),
        fmt::format("tools[{}].function.parameters", request.held_tools[i].index));
  }
  std::erase(request.unknown_fields, "tools[].function.strict");
  return Status();
}

Status Preparer::AddStructure(Rendered& rendered, CompletionRequest& request) const {
  AnswerFormat& format = *rendered.answer_format;
  std::optional<StructuredOutput>& output = request.sampling.structured_output;
  // Without a form of tool calls there are none that could break a schema.
  const bool hold = !request.held_tools.empty() && (request.must_call || format.tools != nullptr);
  const bool any_text = !output;
  if (hold) RETURN_IF_ERROR(HoldTools(format, request));
  if (!output) return Status();
  if (format.harmony()) {
    output->messages =
        HarmonyMessages(rendered.text, /*commentary=*/any_text && !request.must_call);
  } else {
    output->reasoning = FreeReasoning(rendered.text, format.reasoning);
    // The template has ended the reasoning, so text that looks like some belongs to the form.
    if (!output->reasoning && !format.call_begins.empty()) format.reasoning = nullptr;
  }
  return Status();
}

Status Preparer::AddThinking(const Rendered& rendered, CompletionRequest& request) const {
  SamplingParams& sampling = request.sampling;
  if (const ReasoningFormat* const format = rendered.answer_format->reasoning) {
    BoundThinking(*format, rendered.answer_format->in_reasoning, sampling);
  }
  if (!sampling.thinking_token_budget || sampling.thinking) return Status();
  if (request.thinking_budget_given) {
    return request.spellings.Apply(Unimplemented(
        "thinking_token_budget: this model has no marks around its reasoning, or none that "
        "--reasoning-parser knows"));
  }
  sampling.thinking_token_budget.reset();  // there is nothing that the server's default could bound
  return Status();
}

Status Preparer::PreparePrompts(PreparedCompletion& prepared) const {
  const CompletionRequest& request = prepared.request;
  RETURN_IF_ERROR(CheckStructures(request));
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const PromptInput& prompt = request.prompts[i];
    const std::string path =
        request.prompt_list ? fmt::format("prompt[{}]", i) : std::string("prompt");
    std::vector<int32_t> ids;
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      RETURN_IF_ERROR(CheckLength(path, *text));
      ASSIGN_OR_RETURN(ids, loaded_.Tokenize(*text, request.add_special_tokens, true));
    } else {
      ids = std::get<std::vector<int32_t>>(prompt);
    }
    if (ids.empty()) return InvalidArgument("{}: must hold at least one token", path);
    RETURN_IF_ERROR(CheckIds(path, ids));
    prepared.prompts.push_back(std::move(ids));
  }
  return request.echo ? CheckEcho(prepared) : Status();
}

Status Preparer::CheckEcho(const PreparedCompletion& prepared) const {
  uint64_t bytes = 0;
  for (const std::vector<int32_t>& ids : prepared.prompts) {
    bytes += kChoiceBytes + JsonTextBytes(loaded_.Detokenize(ids));
    if (prepared.request.return_token_ids) bytes += JsonIdBytes(ids);
  }
  return CheckResponseBytes(limits_, "echo",
                            bytes * static_cast<uint64_t>(prepared.request.sampling.n));
}

Status Preparer::CheckPromptLogprobs(const PreparedCompletion& prepared) const {
  const CompletionRequest& request = prepared.request;
  if (!request.sampling.prompt_logprobs) return Status();
  const int32_t top = std::min(*request.sampling.prompt_logprobs, loaded_.model().vocab_size);
  uint64_t tokens = 0;
  for (const std::vector<int32_t>& ids : prepared.prompts) tokens += ids.size() - 1;
  for (const ImageData& image : prepared.images) tokens += image.tokens.size() - 1;
  return CheckResponseBytes(limits_,
                            request.return_prompt_logprobs ? "prompt_logprobs" : "logprobs",
                            tokens * static_cast<uint64_t>(top) * kLeastAlternativeBytes);
}

Status Preparer::CheckBeamLogprobs(const PreparedCompletion& prepared) const {
  const SamplingParams& sampling = prepared.request.sampling;
  if (!sampling.beam_search || !sampling.logprobs) return Status();
  const ModelInfo& model = loaded_.model();
  const int32_t each = 1 + std::min(*sampling.logprobs, model.vocab_size);
  int64_t tokens = 0;
  for (const std::vector<int32_t>& ids : prepared.prompts) {
    const int64_t room = int64_t{model.max_context} - static_cast<int64_t>(ids.size());
    tokens += std::clamp<int64_t>(room, 0, sampling.max_tokens.value_or(model.max_context));
  }
  return CheckResponseBytes(
      limits_, "logprobs",
      static_cast<uint64_t>(tokens * sampling.beam_search->width * each) * kLeastAlternativeBytes);
}

Status Preparer::CheckVectors(const OpenAiEmbeddingRequest& request) const {
  const EmbeddingInfo& info = loaded_.model().embedding;
  const auto dimensions = static_cast<uint64_t>(
      std::max(1, request.engine_request.dimensions.value_or(info.dimensions)));
  const uint64_t each = EmbeddingBytes(dimensions, request.base64);
  return CheckResponseBytes(limits_, "input", request.engine_request.inputs.size() * each);
}

Result<PreparedResponse> Preparer::Tokenize(std::string body) const {
  ASSIGN_OR_RETURN(TokenizeRequest request, ParseTokenizeRequest(body, loaded_.model().images));
  body = std::string();
  RETURN_IF_ERROR(CheckModel(request.model));
  RETURN_IF_ERROR(CheckSources(request.images));
  if (!request.text) {
    ASSIGN_OR_RETURN(Rendered rendered, Render(std::move(request.conversation)));
    request.text = std::move(rendered.text);
  }
  PreparedResponse prepared{.images = std::move(request.images),
                            .prompt = {.return_pieces = request.return_pieces},
                            .unknown_fields = std::move(request.unknown_fields)};
  if (!prepared.images.empty()) {
    request.text = WriteOutPlaceholders(*loaded_.model().images, *std::move(request.text));
  }
  ASSIGN_OR_RETURN(prepared.prompt.tokens,
                   loaded_.Tokenize(*request.text, request.add_special_tokens, true));
  RETURN_IF_ERROR(CheckImages(prepared.images.size(), prepared.prompt.tokens));
  if (!prepared.images.empty()) return prepared;
  return Respond(std::move(prepared));
}

Result<PreparedResponse> Preparer::Respond(PreparedResponse prepared) const {
  const std::vector<int32_t>& ids = prepared.prompt.tokens;
  std::optional<std::vector<std::string>> pieces;
  if (prepared.prompt.return_pieces) {
    if (ids.size() > kMaxPieces) {
      return InvalidArgument("return_pieces: at most {} tokens have pieces, there are {}",
                             kMaxPieces, ids.size());
    }
    uint64_t bytes = 0;
    for (const int32_t id : ids) bytes += sizes_.Piece(id);
    RETURN_IF_ERROR(CheckResponseBytes(limits_, "return_pieces", bytes));
    pieces.emplace();
    for (const int32_t id : ids) pieces->push_back(loaded_.TokenBytes(id));
  }
  prepared.body = FormatTokens(prepared.prompt, loaded_.model().max_context, pieces);
  return prepared;
}

Status Preparer::CheckImages(size_t num_images, const std::vector<int32_t>& prompt) const {
  if (num_images == 0) return Status();
  return CheckPlaceholders(*loaded_.model().images, num_images, prompt).WithContext("messages");
}

Status Preparer::CheckSources(const std::vector<MessageImage>& images) const {
  for (const MessageImage& image : images) {
    if (image.on_web() && sources_.web) {
      RETURN_IF_ERROR(sources_.web->Check(image.url).WithContext(image.path));
    } else if (image.on_web()) {
      return InvalidArgument(
          "{}: this server fetches nothing (--allow-image-hosts HOST lets it); send a data: URL",
          image.path);
    } else if (!image.url.empty() && !sources_.root) {
      return InvalidArgument(
          "{}: this server reads no files (--image-root DIR lets it); send a data: URL",
          image.path);
    }
  }
  return Status();
}

Result<ImageData> Preparer::Decode(MessageImage image) const {
  if (!image.url.empty()) {
    const auto max_bytes = static_cast<uint64_t>(loaded_.model().images->max_bytes);
    ASSIGN_OR_RETURN(image.bytes, sources_.root->Read(image.url, {.max_bytes = max_bytes}));
  }
  return served_.engine->PrepareImage(image.bytes, image.options);
}

Result<std::vector<ImageData>> Preparer::Decode(std::vector<MessageImage> images) const {
  if (served_.engine == nullptr) return Unimplemented("messages: this model takes no images");
  std::vector<ImageData> decoded;
  for (MessageImage& image : images) {
    const std::string path = image.path;
    Result<ImageData> one = Decode(std::move(image));
    if (!one.ok()) return ImageError(path, one.status());
    decoded.push_back(*std::move(one));
  }
  return decoded;
}

Result<PreparedCompletion> Preparer::AddImages(PreparedCompletion prepared) const {
  ASSIGN_OR_RETURN(prepared.images, Decode(std::exchange(prepared.request.images, {})));
  RETURN_IF_ERROR(prepared.request.spellings.Apply(CheckPromptLogprobs(prepared)));
  return prepared;
}

Result<PreparedResponse> Preparer::AddImages(PreparedResponse prepared) const {
  ASSIGN_OR_RETURN(const auto images, Decode(std::exchange(prepared.images, {})));
  std::vector<std::span<const int32_t>> tokens;
  for (const ImageData& image : images) tokens.emplace_back(image.tokens);
  TokenizedPrompt& prompt = prepared.prompt;
  const std::vector<int32_t> positions =
      ExpandPlaceholders(loaded_.model().images->placeholder_id, tokens, prompt.tokens);
  for (size_t i = 0; i < images.size(); ++i) {
    prompt.images.push_back({positions[i], static_cast<int32_t>(tokens[i].size())});
  }
  return Respond(std::move(prepared));
}

Result<PreparedResponse> Preparer::Detokenize(std::string body) const {
  ASSIGN_OR_RETURN(DetokenizeRequest request, ParseDetokenizeRequest(body));
  body = std::string();
  RETURN_IF_ERROR(CheckModel(request.model));
  RETURN_IF_ERROR(CheckIds("tokens", request.tokens));
  uint64_t bytes = 0;
  for (const int32_t id : request.tokens) bytes += sizes_.Text(id);
  RETURN_IF_ERROR(CheckResponseBytes(limits_, "tokens", bytes));
  return PreparedResponse{.body = FormatText(loaded_.Detokenize(request.tokens)),
                          .unknown_fields = std::move(request.unknown_fields)};
}

}  // namespace tokamak
