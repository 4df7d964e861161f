// Target: documents of texts. The first byte of the input chooses the form, the second one the separating
// byte. Documents of plain text and their separators make up all of it but what precedes the first one.
#include "input.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/text_documents.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  if (size < 2) return 0;
  const std::string_view text = fuzz::text_of(data + 2, size - 2);
  DocumentRule rule{.form = static_cast<DocumentForm>(data[0] % 4),
                    .line = "--",
                    .byte = static_cast<char>(data[1]),
                    .key = "text",
                    .max_bad_share = 0.5};
  std::size_t at = 0;
  std::int64_t calls = 0;
  try {
    const DocumentCounts counts = for_each_document(text, rule, "input", [&](const TextDocument& document) {
      fuzz::require(!document.text.empty(), "a document without bytes");
      if (rule.form != DocumentForm::kJsonLines) {
        const auto begin = static_cast<std::size_t>(document.text.data() - text.data());
        fuzz::require(calls == 0 || begin == at, "bytes between documents");
        fuzz::require(document.separator.empty() ||
                          document.separator.data() == text.data() + begin + document.text.size(),
                      "a separator elsewhere");
        at = begin + document.text.size() + document.separator.size();
      }
      ++calls;
    });
    fuzz::require(counts.documents == calls && calls > 0, "documents that are not counted");
    fuzz::require(rule.form == DocumentForm::kJsonLines || at == text.size(),
                  "bytes after the last document");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
