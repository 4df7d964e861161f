#include "plugin/abi_tag.hpp"

#include "plugin/elf_section.hpp"

#include <tenon/error.hpp>
#include <tenon/plugin.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::plugin {
namespace {

constexpr std::string_view kNoCodeRan = "No plugin code was run.";
constexpr std::size_t kMostOffers = 1024;

struct Field {
  std::string_view key;
  std::string AbiTag::*value;
  std::string_view fix;  // "" = reported only; {} is the program's value
};

constexpr Field kFields[] = {
    {"epoch", &AbiTag::epoch, "SDK"},
    {"arch", &AbiTag::arch, "Build it for {}"},
    {"stdlib", &AbiTag::stdlib, "Rebuild against {}"},
    {"string-abi", &AbiTag::string_abi, "Rebuild without setting _GLIBCXX_USE_CXX11_ABI"},
    {"debug-containers", &AbiTag::debug_containers, "Rebuild with _GLIBCXX_DEBUG {}"},
    {"rtti", &AbiTag::rtti, "Rebuild with -frtti"},
    {"exceptions", &AbiTag::exceptions, "Rebuild with -fexceptions"},
    {"compiler", &AbiTag::compiler, ""},
    {"sdk-version", &AbiTag::sdk_version, ""},
    {"language", &AbiTag::language, ""},
};

struct Words {
  std::vector<std::string_view> words;
  bool clean = true;  // printable ASCII, single blanks
};

Words split_words(std::string_view line) {
  Words result;
  for (char c : line) result.clean = result.clean && c >= ' ' && c <= '~';
  while (true) {
    const std::size_t blank = line.find(' ');
    result.words.push_back(line.substr(0, blank));
    result.clean = result.clean && !result.words.back().empty();
    if (blank == std::string_view::npos) return result;
    line.remove_prefix(blank + 1);
  }
}

// Reads one line after another into the tag; each function returns the problem or "".
class TagReader {
 public:
  std::string line(std::string_view text) {
    ++number_;
    const Words split = split_words(text);
    if (!split.clean) return fmt::format("line {} is not a list of words", number_);
    const auto& words = split.words;
    const std::string_view key = words[0];
    if (number_ == 1) {
      if (key != "tenon-abi" || words.size() != 2) return "it does not begin with 'tenon-abi 1'";
      if (words[1] != "1") return fmt::format("its format is {}, this program reads format 1", words[1]);
      return "";
    }
    if (key == "component") return component(words);
    if (key == "alias") return alias(words);
    if (key == "plugin") {
      if (words.size() != 3 || !tag.plugin_id.empty()) return malformed(key);
      tag.plugin_id = words[1];
      tag.plugin_version = words[2];
      return "";
    }
    for (const Field& field : kFields) {
      if (key != field.key) continue;
      if (words.size() != 2 || !(tag.*field.value).empty()) return malformed(key);
      tag.*field.value = words[1];
    }
    return "";
  }

  std::string missing() const {
    for (const Field& field : kFields) {
      if ((tag.*field.value).empty()) return fmt::format("it has no line '{}'", field.key);
    }
    return tag.plugin_id.empty() ? "it has no line 'plugin'" : "";
  }

  AbiTag tag;

 private:
  std::string malformed(std::string_view key) const {
    return fmt::format("line {} ('{}') is malformed or repeated", number_, key);
  }

  std::string component(const std::vector<std::string_view>& words) {
    if (words.size() != 3 || tag.offers.size() >= kMostOffers) return malformed(words[0]);
    tag.offers.push_back({std::string(words[1]), std::string(words[2]), {}});
    return "";
  }

  std::string alias(const std::vector<std::string_view>& words) {
    if (words.size() != 4 || tag.offers.empty()) return malformed(words[0]);
    Offer& last = tag.offers.back();  // aliases follow their component
    if (last.kind != words[1] || last.id != words[3]) return malformed(words[0]);
    last.aliases.emplace_back(words[2]);
    return "";
  }

  int number_ = 0;
};

// "0.3.1" -> "0.3.x"
std::string release_line(const std::string& version) {
  const std::size_t last = version.rfind('.');
  return last == std::string::npos ? version : version.substr(0, last) + ".x";
}

}  // namespace

std::string cannot_load(const std::filesystem::path& file, std::string_view text) {
  return fmt::format("Cannot load '{}': {}", file.string(), text);
}

std::string abi_summary(const AbiTag& tag) {
  return fmt::format(
      "epoch {}, {}, {}, string-abi {}, debug-containers {}, rtti {}, exceptions {}, {}, sdk {}, {}",
      tag.epoch, tag.arch, tag.stdlib, tag.string_abi, tag.debug_containers, tag.rtti, tag.exceptions,
      tag.compiler, tag.sdk_version, tag.language);
}

TagResult parse_abi_tag(std::string_view bytes) {
  TagReader reader;
  std::string_view rest = bytes.substr(0, bytes.find('\0'));
  while (true) {
    const std::size_t end_of_line = rest.find('\n');
    if (end_of_line == std::string_view::npos) return {{}, "it breaks off before the line 'end'"};
    const std::string_view line = rest.substr(0, end_of_line);
    rest.remove_prefix(end_of_line + 1);
    if (line == "end") break;
    std::string problem = reader.line(line);
    if (!problem.empty()) return {{}, std::move(problem)};
  }
  std::string problem = reader.missing();
  if (!problem.empty()) return {{}, std::move(problem)};
  reader.tag.text = bytes.substr(0, rest.data() - bytes.data());
  return {std::move(reader.tag), ""};
}

AbiTag read_abi_tag(const std::filesystem::path& file) {
  const FileSource source(file);
  std::string problem = source.problem();
  TagResult result;
  if (problem.empty()) {
    const SectionResult section = read_elf_section(source, TENON_ABI_SECTION);
    problem = section.problem;
    if (problem.empty()) {
      result = parse_abi_tag(section.text);
      if (!result.problem.empty()) problem = "section " TENON_ABI_SECTION " is damaged: " + result.problem;
    }
  }
  if (!problem.empty()) fail_plugin(cannot_load(file, fmt::format("{}. {}", problem, kNoCodeRan)));
  return std::move(result.tag);
}

const AbiTag& host_abi_tag() {
  static constexpr auto kText = detail::abi_text([](detail::AbiWriter& out) {
    detail::write_abi_platform(out);
    out.line("plugin", "tenon.core", TENON_SDK_VERSION);
    out.line("end");
  });
  static const AbiTag tag = parse_abi_tag({kText.data(), kText.size()}).tag;
  return tag;
}

std::string abi_problem(const AbiTag& tag, const AbiTag& host, const std::filesystem::path& file) {
  const auto* differing = std::find_if(std::begin(kFields), std::end(kFields), [&](const Field& field) {
    return !field.fix.empty() && tag.*field.value != host.*field.value;
  });
  if (differing == std::end(kFields)) return "";
  const std::string& theirs = tag.*differing->value;
  const std::string& ours = host.*differing->value;
  const bool epoch = differing->key == "epoch";
  const std::string_view what = epoch ? "plugin ABI" : differing->key;
  const std::string fix = epoch ? fmt::format("Rebuild against SDK {}", release_line(host.sdk_version))
                                : fmt::format(fmt::runtime(differing->fix), ours);
  return cannot_load(
      file,
      fmt::format("built for {} {}, this program has {} {} (plugin SDK {} {}; host SDK {} {}). "
                  "First difference: {} {} != {}. {}, see docs/plugins/abi.md. {}",
                  what, theirs, epoch ? "ABI" : what, ours, tag.sdk_version, tag.compiler, host.sdk_version,
                  host.compiler, epoch ? "abi" : what, theirs, ours, fix, kNoCodeRan));
}

}  // namespace tenon::plugin
