// Target: plugin files. The same bytes are read as an ELF file whose section holds a tag, and as a tag
// itself; an accepted tag reads as the same again.
#include "input.hpp"

#include "plugin/abi_tag.hpp"
#include "plugin/elf_section.hpp"

#include <tenon/plugin_abi.h>

#include <span>

namespace {

void read_tag(std::string_view bytes) {
  using namespace tenon;
  const plugin::TagResult first = plugin::parse_abi_tag(bytes);
  if (!first.problem.empty()) return;
  fuzz::require(first.tag.text.size() <= bytes.size(), "a tag longer than its bytes");
  fuzz::require(!first.tag.plugin_id.empty() && !first.tag.epoch.empty(), "a tag without identity");
  const plugin::TagResult again = plugin::parse_abi_tag(first.tag.text);
  fuzz::require(
      again.problem.empty() && again.tag.offers == first.tag.offers && again.tag.text == first.tag.text,
      "a tag that reads differently");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  const std::string_view bytes = fuzz::text_of(data, size);
  const plugin::SectionResult section =
      plugin::read_elf_section(plugin::MemorySource(std::as_bytes(std::span(bytes))), TENON_ABI_SECTION);
  if (section.problem.empty()) read_tag(section.text);
  read_tag(bytes);
  return 0;
}
