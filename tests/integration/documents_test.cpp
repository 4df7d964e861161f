// Documents through whole runs: equal losses of packed and unpacked documents, the tokenizer of the data
// in manifest, resume, generation and export, and what is refused.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>

namespace tenon::integration::documents_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// Rows of 16 numbers as NumPy writes them.
std::string rows_file(const std::vector<std::array<std::int32_t, 16>>& rows) {
  std::string header =
      "{'descr': '<i4', 'fortran_order': False, 'shape': (" + std::to_string(rows.size()) + ", 16), }";
  header.resize(117, ' ');
  return "\x93NUMPY\x01" + std::string(1, '\0') + "\x76" + std::string(1, '\0') + header + "\n" +
         std::string(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof rows[0]);
}

class Documents : public ::testing::Test {
 protected:
  /// Documents that fill windows of 16 exactly, each with its end, byte 30; and the same in rows of their
  /// own.
  void SetUp() override {
    std::vector<std::array<std::int32_t, 16>> tokens, targets;
    std::string text;
    int letter = 0;
    for (const int length : {10, 6, 16, 5, 5, 6, 9, 7, 2, 14, 16, 8, 8, 3, 4, 9}) {
      std::string document;
      for (int i = 1; i < length; ++i) document += "the quick brown fox jumps"[letter++ * 7 % 25];
      document += '\x1E';
      tokens.emplace_back().fill(0);
      targets.emplace_back().fill(-1);
      for (int i = 0; i < length; ++i) {
        tokens.back()[i] = document[i];
        if (i + 1 < length) targets.back()[i] = document[i + 1];
      }
      text += document;
    }
    write_file(scratch_ / "documents.txt", text);
    write_file(scratch_ / "tokens.npy", rows_file(tokens));
    write_file(scratch_ / "targets.npy", rows_file(targets));
  }
  static std::string text_data(const std::string& more) {
    return "type=\"text\", path=\"documents.txt\", val_path=\"documents.txt\", separator_byte=30, "
           "context=16, " +
           more;
  }
  json train(const std::string& folder, const std::vector<std::string>& more) const {
    std::vector<std::string> words{"--run-dir", folder};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = scratch_.train(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return json::parse(read_file(scratch_ / (folder + "/1/summary.json")));
  }
  static std::vector<std::string> with(const std::string& data, const std::string& model) {
    return {"--set", "data={" + data + "}", "--set", "model={" + model + "}"};
  }

  Scratch scratch_;
};

constexpr const char* kNeo = "type=\"gpt_neo\", layers=2, width=16, heads=2, vocabulary=256";
constexpr const char* kDecoder =
    "type=\"decoder\", pattern=\"*-\", repeat=2, width=16, heads=4, kv_heads=2, hidden=32, vocabulary=256";

// Windows hold whole documents here, so all three have the same targets, each seen from its own document.
TEST_F(Documents, HaveTheLossOfUnpackedSamples) {
  for (const std::string model : {kNeo, kDecoder}) {
    const std::string name = model.substr(6, 3);
    // A few updates first: a model at its beginning hardly reads what precedes a token.
    train(name, with(text_data("batch=2, pack=\"whole\""), model));
    const auto loss = [&](const std::string& folder, const std::string& data) {
      std::vector<std::string> words = with(data, model);
      words.insert(words.end(),
                   {"--set", "init.from=" + name, "--set", "run.steps=1", "--set", "optimizer.lr=0"});
      return train(name + folder, words)["metrics"]["val/loss"].get<double>();
    };
    const double unpacked =
        loss("unpacked",
             "type=\"npy\", inputs=[\"tokens=tokens.npy\"], targets=[\"targets=targets.npy\"], "
             "val_inputs=[\"tokens=tokens.npy\"], val_targets=[\"targets=targets.npy\"], batch=4");
    const double whole = loss("whole", text_data("batch=3, pack=\"whole\""));
    const double documents = loss("documents", text_data("batch=2, pack=\"documents\""));
    const double stream = loss("stream", text_data("batch=2"));
    EXPECT_NEAR(whole, unpacked, 1e-6) << model;
    EXPECT_NEAR(documents, unpacked, 1e-6) << model;
    EXPECT_GT(std::abs(stream - unpacked), 1e-3) << "a stream predicts across documents";
  }
}

TEST_F(Documents, TextsOfATokenizerAreTrainedResumedContinuedAndExported) {
  const std::string data = text_data("batch=2, pack=\"whole\", tokenizer={type=\"bpe\"}");
  const std::string model = "type=\"gpt_neo\", layers=1, width=16, heads=2";
  const json whole = train("run", with(data, model));
  EXPECT_EQ(whole["metrics"].count("val/loss_per_byte"), 1u);
  const json manifest = json::parse(read_file(scratch_ / "run/1/manifest.json"));
  std::string digest;
  for (const json& source : manifest["data"]) {
    if (source["path"] == "tokenizer") digest = source["sha256"];
  }
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_TRUE(fs::exists(scratch_ / "tenon-cache")) << "beside the text";

  // Two of six slots, then the others: the same weights as in one go.
  std::vector<std::string> part = with(data, model);
  part.insert(part.end(), {"--run-dir", "parts", "--set", "run.steps=2"});
  EXPECT_EQ(scratch_.train(part).status, 0);
  part.back() = "run.steps=6";
  part.emplace_back("--resume");
  const Ended resumed = scratch_.train(part);
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(json::parse(read_file(scratch_ / "parts/latest/summary.json"))["weights_hash"],
            whole["weights_hash"]);
  part[1] = "data={" + text_data("batch=2, pack=\"whole\"") + "}";
  part[3] = "model={" + model + ", vocabulary=256}";
  part[part.size() - 2] = "run.steps=8";
  const Ended other = scratch_.train(part);
  EXPECT_NE(other.status, 0) << "another tokenizer";
  EXPECT_THAT(other.err, HasSubstr("was trained on other data"));

  const Ended exported = scratch_.run({"export", "run", "--out", "hf/model.safetensors"});
  EXPECT_EQ(exported.status, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("hf/tokenizer.json"));
  EXPECT_EQ(json::parse(read_file(scratch_ / "hf/tokenizer.json"))["model"]["type"], "BPE");
  const Ended again = scratch_.run({"export", "run", "--out", "hf/other.safetensors"});
  EXPECT_NE(again.status, 0) << "nothing is overwritten";

  const Ended generated = scratch_.run({"generate", "run", "--prompt", "the quick", "--tokens", "4"});
  EXPECT_EQ(generated.status, 0) << generated.err;
  EXPECT_THAT(generated.out, HasSubstr("the quick"));
}

TEST_F(Documents, AnotherPackingIsNoResume) {
  train("run", with(text_data("batch=2, pack=\"whole\""), kNeo));
  std::vector<std::string> words = with(text_data("batch=2, pack=\"documents\""), kNeo);
  words.insert(words.end(), {"--run-dir", "run", "--resume", "--set", "run.steps=8"});
  const Ended ended = scratch_.train(words);
  EXPECT_NE(ended.status, 0);
  EXPECT_THAT(ended.err, HasSubstr("packing: pack ="));
}

}  // namespace
}  // namespace tenon::integration::documents_test
