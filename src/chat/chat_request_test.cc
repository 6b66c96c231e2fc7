#include <gtest/gtest.h>

#include "tokamak/chat.h"

namespace tokamak {
namespace {

TEST(MakeChatRequest, RendersTheModelsTemplate) {
  ModelInfo model;
  model.bos_token = "<s>";
  model.chat_template =
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  const auto request = MakeChatRequest(model, {{"system", "Be brief."}, {"user", "Hi"}});
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  EXPECT_EQ(request->prompt, "<s>[system] Be brief.\n[user] Hi\n[assistant]");
  EXPECT_FALSE(request->add_special_tokens);
  EXPECT_TRUE(request->parse_special_tokens);
}

TEST(MakeChatRequest, ReportsMissingTemplatesAndTheirErrors) {
  ModelInfo model;
  EXPECT_EQ(MakeChatRequest(model, {}).status().code(), StatusCode::kUnimplemented);
  model.chat_template = "{{ raise_exception('users only') }}";
  const Status refused = MakeChatRequest(model, {{"cat", "Meow"}}).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("users only"), std::string_view::npos);
}

}  // namespace
}  // namespace tokamak
