// Tests images in conversations, from the body of a request to the engine.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/testing/server_fixture.h"
#include "server/transport/http_server.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kPath[] = "/v1/chat/completions";

Json Image(const std::string& base64) {
  return {{"type", "image_url"}, {"image_url", {{"url", "data:image/png;base64," + base64}}}};
}
Json Text(const std::string& text) { return {{"type", "text"}, {"text", text}}; }
std::string Body(const std::vector<Json>& parts, const std::string& role = "user") {
  return Json{{"messages", {{{"role", role}, {"content", parts}}}}, {"max_tokens", 1}}.dump();
}

class ImagesTest : public ServerFixture {
 protected:
  // The message and the path of the error that a request gets.
  std::pair<std::string, std::string> Refusal(const std::string& body,
                                              const std::string& path = kPath) {
    const auto response = Connect().Post(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    const Json error = Json::parse(response.body)["error"];
    EXPECT_NE(error["code"], "context_length_exceeded");
    return {error["message"], error["param"].is_null() ? "" : error["param"]};
  }
};

TEST_F(ImagesTest, ReachTheEngineInTheirOrder) {
  engine_.TakeImages(3);
  Start();
  const std::vector<Json> parts = {Image("Zm9v"), Text("a"), Image("Zg=="),
                                   Text("b"),     Text("c"), Image("Zm8=")};
  const auto response = Connect().Post(kPath, Body(parts));
  ASSERT_EQ(response.status, 200) << response.body;
  const Request request = engine_.last_request();
  std::vector<std::string> images;
  for (const ImageData& image : request.images) images.push_back(image.bytes);
  EXPECT_THAT(images, ElementsAre("foo", "f", "fo"));
  EXPECT_THAT(engine_.Detokenize(request.token_ids), HasSubstr("user\n#\na\n#\nbc\n#<|im_end|>"));
}

TEST_F(ImagesTest, TokenizeShowsTheirSpans) {
  engine_.TakeImages(3);
  Start();
  const std::string body =
      Json{{"messages",
            {{{"role", "user"}, {"content", {Image("Zm9v"), Text("a"), Image("Zm8=")}}}}}}
          .dump();
  const Json answer = Json::parse(Connect().Post("/tokenize", body).body);
  const std::string text = "<|im_start|>user\n###\na\n##<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(answer["count"], text.size());
  EXPECT_EQ(engine_.Detokenize(answer["tokens"]), text);
  EXPECT_EQ(answer["images"], (Json{{{"position", text.find('#')}, {"count", 3}},
                                    {{"position", text.find("##<")}, {"count", 2}}}));
}

TEST_F(ImagesTest, OptionsOfARequestAreThoseOfItsImages) {
  engine_.TakeImages(3);
  Start();
  const auto options = [&](const std::string& name, const Json& kwargs) {
    Json body = Json::parse(Body({Image("Zm9v"), Image("Zg==")}));
    body[name] = kwargs;
    const auto response = Connect().Post(kPath, body.dump());
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_THAT(response.headers, Not(HasSubstr("Tokamak-Ignored-Fields")));
    std::vector<std::pair<int, int>> all;
    for (const ImageData& image : engine_.last_request().images) {
      all.emplace_back(image.options.min_pixels.value_or(0), image.options.max_pixels.value_or(0));
    }
    return all;
  };
  using testing::Pair;
  const auto both = [](int least, int most) {
    return ElementsAre(Pair(least, most), Pair(least, most));
  };
  const std::string field = "mm_processor_kwargs";
  EXPECT_THAT(options(field, {{"min_pixels", 5}, {"max_pixels", 99}}), both(5, 99));
  EXPECT_THAT(options(field, {{"size", {{"longest_edge", 80}}}}), both(0, 80));
  EXPECT_THAT(options(field, Json::object()), both(0, 0));
  EXPECT_THAT(options(field, nullptr), both(0, 0));
  EXPECT_THAT(options("extra_body", {{field, {{"max_pixels", 70}}}}), both(0, 70));
}

TEST_F(ImagesTest, OptionsThatTheModelDoesNotTakeAreErrors) {
  const auto refusal = [&](const Json& kwargs, const char* path) {
    Json body = Json::parse(Body({Image("Zm9v")}));
    body["mm_processor_kwargs"] = kwargs;
    return Refusal(body.dump(), path);
  };
  engine_.TakeImages(3);
  Start();
  const struct {
    Json kwargs;
    std::string param, message;
  } kCases[] = {
      {{{"max_pixels", 101}}, "mm_processor_kwargs.max_pixels", "must be from 1 to 100"},
      {{{"min_pixels", 65}}, "mm_processor_kwargs.min_pixels", "and max_pixels only 64"},
      {{{"max_pixels", -1}}, "mm_processor_kwargs.max_pixels", "must be from 1 to 100"},
      {{{"max_pixels", 9.5}}, "mm_processor_kwargs.max_pixels", "must be an integer"},
      {{{"fps", 2}}, "mm_processor_kwargs.fps", "is not supported"},
      {{{"size", {{"height", 2}}}}, "mm_processor_kwargs.size.height", "is not supported"},
      {"low", "mm_processor_kwargs", "must be an object"},
  };
  for (const auto& [kwargs, param, message] : kCases) {
    for (const char* path : {kPath, "/tokenize"}) {
      const auto got = refusal(kwargs, path);
      EXPECT_EQ(got.second, param) << kwargs;
      EXPECT_THAT(got.first, HasSubstr(message)) << kwargs;
    }
  }
  EXPECT_THAT(
      Refusal(R"({"text": "a", "mm_processor_kwargs": {"max_pixels": 9}})", "/tokenize").first,
      HasSubstr("goes with \"messages\""));
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(ImagesTest, AModelOfTextRefusesThemByTheirPart) {
  Start();
  for (const char* path : {kPath, "/tokenize"}) {
    const std::string body =
        Json{{"messages", {{{"role", "user"}, {"content", {Text("a"), Image("Zm9v")}}}}}}.dump();
    const auto [message, param] = Refusal(body, path);
    EXPECT_EQ(param, "messages[0].content[1].type");
    EXPECT_THAT(message,
                HasSubstr("\"image_url\" is not supported by this model; it accepts \"text\""));
  }
  const Json model = Json::parse(Connect().Get("/v1/models").body)["data"][0];
  EXPECT_EQ(model["input_modalities"], (Json{"text"}));
  EXPECT_FALSE(model.contains("images"));
}

TEST_F(ImagesTest, ModelsSayWhatTheyAccept) {
  engine_.TakeImages(3);
  Start();
  const Json model = Json::parse(Connect().Get("/v1/models").body)["data"][0];
  EXPECT_EQ(model["input_modalities"], (Json{"text", "image"}));
  EXPECT_EQ(model["images"]["max_images"], 3);
}

TEST_F(ImagesTest, ErrorsNameThePart) {
  engine_.TakeImages(2);
  Start();
  const auto changed = [](const Json& patch) {
    Json image = Image("Zm9v");
    image.merge_patch(patch);
    return Body({image});
  };
  const Json no_url = Json::parse(R"({"image_url": {"url": null}})");
  const struct {
    std::string body, param, message;
  } kCases[] = {
      {Body({Image("Zm9v")}, "system"), "messages[0].content[0].type", "the role \"user\""},
      {Body({Image("Zm9v"), Image("Zm9v"), Image("Zm9v")}), "messages[0].content[2]",
       "--max-images"},
      {changed({{"type", "input_image"}}), "messages[0].content[0].type",
       "\"input_image\" is not supported by this model; it accepts \"text\" and \"image_url\""},
      {changed({{"image_url", "data:image/png;base64,Zm9v"}}), "messages[0].content[0].image_url",
       "must be an object"},
      {changed(no_url), "messages[0].content[0].image_url.url", "must be a string"},
      {changed({{"image_url", {{"detail", "more"}}}}), "messages[0].content[0].image_url.detail",
       "\"low\""},
      {changed({{"image_url", {{"url", "https://example.org/a.png"}}}}),
       "messages[0].content[0].image_url.url", "--allow-image-hosts"},
      {changed({{"image_url", {{"url", "file:///a.png"}}}}), "messages[0].content[0].image_url.url",
       "--image-root"},
      {changed({{"image_url", {{"url", "ftp://example.org/a.png"}}}}),
       "messages[0].content[0].image_url.url", "must be a data: URL"},
      {Body({Text("a"), Image("Zm9")}), "messages[0].content[1].image_url.url", "not valid base64"},
      {Body({Image("Zm9vYmFyYmF6cQ==")}), "messages[0].content[0].image_url.url", "the limit is"},
      // "refused", by the engine.
      {Body({Image("Zm9v"), Image("cmVmdXNlZA==")}), "messages[0].content[1].image_url.url",
       "the image is refused"},
      {Body({Text("1 # 2"), Image("Zm9v")}), "messages",
       "the prompt has 1 images and 2 placeholders for them (\"#\""},
      {fmt::format(R"({{"extra_body": {}}})", Body({Image("Zm9")})),
       "extra_body.messages[0].content[0].image_url.url", "not valid base64"},
  };
  for (const auto& [body, param, message] : kCases) {
    const auto got = Refusal(body);
    EXPECT_EQ(got.second, param) << body;
    EXPECT_THAT(got.first, HasSubstr(message)) << body;
  }
  EXPECT_EQ(engine_.submitted(), 0);
}

// A folder with an image and a broken one.
class ImageFilesTest : public ImagesTest {
 protected:
  ImageFilesTest() {
    std::string pattern = testing::TempDir() + "tokamak_image_files_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream(folder_ + "/cat.png") << "cat";
    std::ofstream(folder_ + "/refused.png") << "refused";
    std::ofstream(folder_ + "/long.png") << std::string(100, 'a');
  }
  ~ImageFilesTest() override { std::filesystem::remove_all(folder_); }

  Json File(const std::string& name) const {
    return {{"type", "image_url"}, {"image_url", {{"url", "file://" + folder_ + "/" + name}}}};
  }

  std::string folder_;
};

TEST_F(ImageFilesTest, ReachTheEngine) {
  engine_.TakeImages(3);
  Start({{.image_root = folder_}});
  const auto response = Connect().Post(kPath, Body({Image("Zm9v"), File("cat.png")}));
  ASSERT_EQ(response.status, 200) << response.body;
  const Request request = engine_.last_request();
  ASSERT_EQ(request.images.size(), 2u);
  EXPECT_EQ(request.images[1].bytes, "cat");
  EXPECT_EQ(Connect().Post("/tokenize", Body({File("cat.png")})).status, 200);
}

TEST_F(ImageFilesTest, ErrorsNameThePart) {
  engine_.TakeImages(3);
  Start({{.image_root = folder_}});
  const std::pair<std::string, std::string> cases[] = {
      {"none.png", "there is no such file below the folder of --image-root"},
      {"../cat.png", "there is no such file"},
      {"", "there is no such file"},
      {"refused.png", "the image is refused"},
      {"long.png", "the limit is"}};
  for (const auto& [name, message] : cases) {
    const auto got = Refusal(Body({Text("a"), File(name)}));
    EXPECT_EQ(got.second, "messages[0].content[1].image_url.url") << name;
    EXPECT_THAT(got.first, HasSubstr(message)) << name;
  }
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(ImageFilesTest, NeedTheOption) {
  engine_.TakeImages(3);
  Start();
  for (const char* path : {kPath, "/tokenize"}) {
    const auto got = Refusal(Body({File("cat.png")}), path);
    EXPECT_EQ(got.second, "messages[0].content[0].image_url.url");
    EXPECT_THAT(got.first, HasSubstr("--image-root"));
  }
}

TEST_F(ImageFilesTest, AFolderThatIsMissingIsAnErrorOfTheStart) {
  const Status status = Server::Create(engine_, {{.image_root = folder_ + "/none"}}).status();
  EXPECT_THAT(status.ToString(), HasSubstr("image_root: " + folder_ + "/none: no such file"));
}

// A server of images. "/N" answers with N bytes, "/never" not at all.
class ImagesOnTheWebTest : public ImagesTest {
 protected:
  ImagesOnTheWebTest() {
    HttpServer::Options options;
    options.port = 0;
    options.error_response = [](const HttpRequest&, int status, const std::string& message) {
      return HttpResponse{.status = status, .body = message};
    };
    const auto handle = [this](ResponseWriter& writer) -> Awaitable<> {
      ++asked_;
      const std::string path = writer.request().path;
      if (path == "/never") {
        while (!writer.gone()) co_await writer.Wait();
        ++gone_;
      } else if (path == "/refused") {
        writer.Respond({.body = "refused"});
      } else {
        writer.Respond({.body = std::string(std::stoul(path.substr(1)), 'x')});
      }
    };
    web_ = HttpServer::Listen(std::move(options), handle).value();
    web_thread_ = std::thread([this] { web_->Run(); });
  }
  ~ImagesOnTheWebTest() override {
    web_->Post([this] { web_->Stop(); });
    web_thread_.join();
  }
  std::string Host() const { return fmt::format("127.0.0.1:{}", web_->port()); }
  Json OnWeb(const std::string& path) const {
    return {{"type", "image_url"}, {"image_url", {{"url", "http://" + Host() + path}}}};
  }

  std::atomic<int> asked_ = 0, gone_ = 0;
  std::unique_ptr<HttpServer> web_;
  std::thread web_thread_;
};

TEST_F(ImagesOnTheWebTest, ReachTheEngineInTheirOrder) {
  engine_.TakeImages(3);
  Start({{.allow_image_hosts = {Host()}}});
  const std::vector<Json> parts = {OnWeb("/3"), Image("Zm9v"), OnWeb("/1")};
  const auto response = Connect().Post(kPath, Body(parts));
  ASSERT_EQ(response.status, 200) << response.body;
  std::vector<std::string> images;
  for (const ImageData& image : engine_.last_request().images) images.push_back(image.bytes);
  EXPECT_THAT(images, ElementsAre("xxx", "foo", "x"));
  EXPECT_EQ(Connect().Post("/tokenize", Body({OnWeb("/3")})).status, 200);
  EXPECT_EQ(asked_, 3);
}

TEST_F(ImagesOnTheWebTest, ErrorsNameThePart) {
  engine_.TakeImages(3);
  Start({{.allow_image_hosts = {Host(), "localhost"}}});
  Json other = OnWeb("/1"), user = OnWeb("/1"), local = OnWeb("/1");
  other["image_url"]["url"] = "http://127.0.0.1/1";
  user["image_url"]["url"] = "http://u@" + Host() + "/1";
  local["image_url"]["url"] = "http://localhost/1";
  const std::pair<Json, std::string> cases[] = {
      {other, "127.0.0.1 is not among the hosts that --allow-image-hosts lists"},
      {user, "has a user before its host"},
      {local, "the host has no public address"},
      {OnWeb("/refused"), "the image is refused"},
      {OnWeb("/100000"), "the file is longer than the limit of"}};
  for (const auto& [image, message] : cases) {
    const auto got = Refusal(Body({Text("a"), image}));
    EXPECT_EQ(got.second, "messages[0].content[1].image_url.url") << image;
    EXPECT_THAT(got.first, HasSubstr(message)) << image;
  }
  // One error ends the request, whatever is still being fetched.
  EXPECT_THAT(Refusal(Body({OnWeb("/never"), OnWeb("/refused/x")})).first, HasSubstr("fetched"));
  EXPECT_TRUE(Eventually([&] { return gone_ == 1; }));
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(ImagesOnTheWebTest, AClientThatLeavesEndsTheFetch) {
  engine_.TakeImages(3);
  Start({{.allow_image_hosts = {Host()}}});
  HttpClient client(server_->port());
  client.SendPost(kPath, Body({OnWeb("/never")}));
  ASSERT_TRUE(Eventually([&] { return asked_ == 1; }));
  // Meanwhile others are served.
  EXPECT_EQ(Connect().Post(kPath, Body({OnWeb("/3")})).status, 200);
  EXPECT_EQ(gone_, 0);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return gone_ == 1; }));
}

TEST_F(ImagesOnTheWebTest, TheServerEndsWhileImagesAreFetched) {
  engine_.TakeImages(3);
  Start({{.drain_seconds = 0, .allow_image_hosts = {Host()}}});
  HttpClient client(server_->port());
  client.SendPost(kPath, Body({OnWeb("/never")}));
  ASSERT_TRUE(Eventually([&] { return asked_ == 1; }));
  Shutdown();
  EXPECT_EQ(client.Receive().status, 503);
}

TEST(MaxOpenSockets, CountsFetchesIfAnyHostIsAllowed) {
  const size_t without = MaxOpenSockets({{.max_connections = 10}});
  EXPECT_EQ(without, 10u);
  // One for each of 256 fetches, two for each of 64 lookups.
  const ServerOptions fetching{{.allow_image_hosts = {"a"}, .max_connections = 10}};
  EXPECT_EQ(MaxOpenSockets(fetching), without + 256 + 128);
}

TEST_F(ImagesOnTheWebTest, AListWithOtherThingsThanHostsIsAnErrorOfTheStart) {
  const Status status = Server::Create(engine_, {{.allow_image_hosts = {"http://a/"}}}).status();
  EXPECT_THAT(status.ToString(), HasSubstr("allow_image_hosts: \"http://a/\" is not a host"));
}

TEST_F(ImagesOnTheWebTest, PrivateHostsAloneAreAnErrorOfTheStart) {
  const Status status = Server::Create(engine_, {{.allow_private_image_hosts = true}}).status();
  EXPECT_THAT(status.ToString(), HasSubstr("needs allow_image_hosts"));
}

TEST_F(ImagesTest, OthersGoOnWhileAnImageIsDecoded) {
  engine_.TakeImages(2);
  engine_.HoldImages();
  Start();
  std::list<HttpClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server_->port());
    clients.back().SendPost(kPath, Body({Image("Zm9v")}));
  }
  ASSERT_TRUE(Eventually([&] { return engine_.holding() == 1; }));
  EXPECT_EQ(Connect().Post(kPath, Body({Text("a")})).status, 200);
  EXPECT_EQ(Connect().Post("/tokenize", R"({"text": "a"})").status, 200);
  EXPECT_EQ(engine_.holding(), 1);
  engine_.ReleaseImages();
  for (HttpClient& client : clients) EXPECT_EQ(client.Receive().status, 200);
}

}  // namespace
}  // namespace tokamak
