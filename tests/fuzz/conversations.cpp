// Target: a line of conversations, as JSON to a value and by a template to tokens. A line that is accepted
// has an answer, and its prompt, where there is one, is how its tokens begin.
#include "chat_template.hpp"
#include "input.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/byte_tokenizer.hpp>
#include <tenon/sdk/json.hpp>

#include <algorithm>

namespace {

constexpr tenon::OptionSpec kTemplateOptions[] = {tenon::text::ChatTemplate::roles_option(),
                                                  tenon::text::ChatTemplate::special_option(),
                                                  tenon::text::ChatTemplate::answer_option()};
constexpr const char* kTemplateTable =
    "[template.user]\nbefore = 'U'\n[template.assistant]\nbefore = 'A'\nafter = '.'\n[template.system]\n"
    "text = 'S'\n";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  static const Config config = Config::parse(kTemplateTable, "template", {});
  static const auto options = resolve_options(OptionRequest{.table = config.root(),
                                                            .owner = "data.conversations",
                                                            .specs = option_list(kTemplateOptions)})
                                  .options;
  static const ByteTokenizer bytes;
  static const text::ChatTemplate form("data.conversations", *options, bytes);
  try {
    const Value line = parse_json(fuzz::text_of(data, size), "input");
    text::ChatTokens tokens;
    form.conversation(line, tokens);
    fuzz::require(tokens.ids.size() == tokens.learned.size(), "tokens without a mark");
    fuzz::require(std::find(tokens.learned.begin() + 1, tokens.learned.end(), true) != tokens.learned.end(),
                  "no answer");
    const std::vector<std::int32_t> prompt = form.prompt(line);
    const std::size_t common = std::min(prompt.size(), tokens.ids.size());
    fuzz::require(
        std::equal(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(common), tokens.ids.begin()),
        "another prompt");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
