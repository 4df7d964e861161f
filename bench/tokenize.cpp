// Speed of byte-level BPE on one thread: text to ids by documents, and learning of 4,096 tokens, beside
// Hugging Face's `tokenizers` on the same documents where a Python has it. Both use the tokenizer that was
// learned here, and the numbers of ids must agree. Usage: tokenize [--megabytes N] [--rounds N] [--pattern
// gpt2|llama3] [--python PYTHON]
// [--folder DIR]
#include "encoder.hpp"
#include "trainer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using namespace tenon;

constexpr std::size_t kDocument = 16384;  // bytes, about

double seconds_of(const auto& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Plays, sources and pages of this tree, without zero bytes, which separate documents in the file for
/// Python; again from the front where they are fewer.
std::vector<std::string> documents(std::size_t bytes) {
  std::vector<std::string> paths;
  for (const char* folder : {"bench", "cli", "core", "data/text", "docs", "kernels", "plugins", "python",
                             "sdk", "services", "tests"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(TENON_SOURCE_DIR) / folder)) {
      const std::string ending = entry.path().extension().string();
      if (entry.is_regular_file() &&
          (ending == ".cpp" || ending == ".hpp" || ending == ".md" || ending == ".py" || ending == ".txt"))
        paths.push_back(entry.path());
    }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> all;
  std::size_t have = 0;
  for (std::size_t i = 0; have < bytes; ++i) {
    std::ifstream file(paths[i % paths.size()], std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    std::string rest = text.str();
    std::erase(rest, '\0');
    while (!rest.empty() && have < bytes) {
      std::size_t cut = rest.find('\n', std::min(kDocument, rest.size()) - 1);
      cut = cut == std::string::npos ? rest.size() : cut + 1;
      all.push_back(rest.substr(0, cut));
      have += cut;
      rest.erase(0, cut);
    }
  }
  return all;
}

struct Peer {
  double encode = -1, train = -1;
  long long ids = 0;
};

Peer peer_of(const std::string& python, const std::string& tokenizer, const std::string& texts,
             const std::string& pattern) {
  const std::string command = fmt::format("{} {}/bench/tokenize_hf.py {} {} {} 2>/dev/null", python,
                                          TENON_SOURCE_DIR, tokenizer, texts, pattern);
  Peer peer;
  if (FILE* pipe = ::popen(command.c_str(), "r")) {
    if (std::fscanf(pipe, "%lf %lf %lld", &peer.encode, &peer.train, &peer.ids) != 3) peer.encode = -1;
    ::pclose(pipe);
  }
  return peer;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{{"--megabytes", "16"},
                                             {"--rounds", "3"},
                                             {"--pattern", "gpt2"},
                                             {"--python", ""},
                                             {"--folder", "/tmp"}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const std::string pattern(options["--pattern"] == "llama3" ? bpe::kLlama3Pattern : bpe::kGpt2Pattern);
  const std::vector<std::string> texts =
      documents(static_cast<std::size_t>(std::atof(options["--megabytes"].c_str()) * 1e6));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const fs::path folder = fs::path(options["--folder"]) / ("tokenize." + std::to_string(::getpid()));
  fs::create_directory(folder);
  double megabytes = 0;
  {
    std::ofstream out(folder / "texts", std::ios::binary);
    for (const std::string& text : texts) {
      out << text << '\0';
      megabytes += static_cast<double>(text.size()) / 1e6;
    }
  }
  std::vector<double> encode, train, peer_encode, peer_train;
  for (int round = 0; round < std::atoi(options["--rounds"].c_str()); ++round) {
    bpe::Description made;
    train.push_back(seconds_of([&] { made = bpe::learn(views, {4096, {"<|endoftext|>"}}, pattern); }));
    if (round == 0)
      std::ofstream(folder / "tokenizer.json", std::ios::binary) << bpe::write_tokenizer_json(made);
    const bpe::Encoder encoder(made, "learned");
    long long ids = 0;
    encode.push_back(seconds_of([&] {
      for (const std::string& text : texts) ids += static_cast<long long>(encoder.encode(text).size());
    }));
    if (options["--python"].empty()) continue;
    const Peer peer =
        peer_of(options["--python"], folder / "tokenizer.json", folder / "texts", options["--pattern"]);
    if (peer.encode < 0) continue;
    if (peer.ids != ids) {
      fmt::print("tokenizers gives {} ids, found {} here\n", peer.ids, ids);
      return 1;
    }
    peer_encode.push_back(peer.encode);
    peer_train.push_back(peer.train);
  }
  fs::remove_all(folder);
  fmt::print("{:.1f} MB in {} documents, pattern {}, one thread\n", megabytes, texts.size(),
             options["--pattern"]);
  const auto line = [&](const char* name, const std::vector<double>& seconds) {
    fmt::print("{:34} {:8.3f} s, {:6.1f} MB/s\n", name, median(seconds), megabytes / median(seconds));
  };
  line("encode", encode);
  line("learn 4,096 tokens", train);
  if (peer_encode.empty()) {
    fmt::print("tokenizers: skipped, {}\n", options["--python"].empty()
                                                ? "no --python"
                                                : options["--python"] + " cannot import tokenizers");
    return 0;
  }
  line("tokenizers, encode", peer_encode);
  line("tokenizers, learn 4,096 tokens", peer_train);
  fmt::print("encode over tokenizers: {:.1f} x, learning: {:.1f} x\n", median(peer_encode) / median(encode),
             median(peer_train) / median(train));
  return 0;
}
