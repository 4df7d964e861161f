// Target: layers of TOML, parsed, merged, and checked as a run. Input: base, layer over it, lines of --set,
// separated by lines of "%%". A configuration that was read can be written and read again; every refusal is
// Error(kConfig).
#include "config/run_schema.hpp"
#include "config/sample_components.hpp"
#include "input.hpp"

#include <vector>

namespace {

using namespace tenon;

std::vector<std::string> pieces(std::string_view text) {
  constexpr std::string_view kBetween = "\n%%\n";
  std::vector<std::string> found;
  for (std::size_t end = text.find(kBetween); end != std::string_view::npos && found.size() < 2;
       end = text.find(kBetween)) {
    found.emplace_back(text.substr(0, end));
    text.remove_prefix(end + kBetween.size());
  }
  found.emplace_back(text);
  found.resize(3);
  return found;
}

std::vector<std::string> lines(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty() && found.size() < 8) {
    const std::size_t end = text.find('\n');
    found.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return found;
}

template <typename Body>
void only_config_errors(Body body) {
  try {
    body();
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const config::sample::Catalog catalog;
  const std::vector<std::string> parts = pieces(fuzz::text_of(data, size));
  only_config_errors([&] {
    const fuzz::MemoryFile base(parts[0]), over(parts[1]);
    const Config read = Config::load(base.path(), lines(parts[2]), {over.path()});
    const std::string written = to_toml(read.root(), true);
    try {
      fuzz::require(Config::parse(written, "again.toml", {}).root() == read.root(),
                    "what was written reads as another value");
    } catch (const Error& error) {
      fuzz::require(false, std::string("what was written cannot be read: ") + error.what());
    }
    only_config_errors([&] { read.explain(parts[2].substr(0, parts[2].find('='))); });
    config::check_run(read, catalog, {});
  });
  return 0;
}
