// The program's response to invalid input: the full message, the exit status, and no written files.
#include "run_program.hpp"

namespace tenon::integration::bad_input_test {
namespace {

struct Refusal {
  const char* name;
  /// Text of run.toml that is replaced, or null: run.toml as it is.
  const char* from;
  const char* to;
  std::vector<std::string> arguments;
  const char* message;
  int status = 2;
};

void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.name;
}

const std::vector<std::string> kTrain{"train", "run.toml", "--quiet"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kTrain.begin(), kTrain.end());
  return more;
}

/// Integers in the format of llm.c.
std::string integers(std::initializer_list<std::int32_t> values) {
  std::string bytes;
  for (const std::int32_t value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return bytes;
}

/// An IDX file: the number of images of 2 x 3, or of labels, as its header says, and the elements.
std::string idx(char dimensions, char count, const std::string& elements) {
  std::string bytes{0, 0, 8, dimensions, 0, 0, 0, count};
  if (dimensions == 3) bytes += std::string({0, 0, 0, 2, 0, 0, 0, 3});
  return bytes + elements;
}

/// A .npy file of version 1.0 without elements after its dictionary.
std::string npy(const std::string& dictionary) {
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(dictionary.size()) + '\0' + dictionary;
}

/// [data] of the scratch run up to the batch.
constexpr const char* kText = "type = \"text\"\npath = \"text.txt\"\ncontext = 16";
constexpr const char* kMnist = "type = \"mnist\"\nimages = \"images.idx\"\nlabels = \"labels.idx\"";

class BadInput : public ::testing::TestWithParam<Refusal> {};

TEST_P(BadInput, IsRefusedInWholeWordsAndWritesNothing) {
  const Refusal& refusal = GetParam();
  const Scratch scratch;
  if (refusal.from != nullptr) {
    const std::string edited = replaced(Scratch::kRun, refusal.from, refusal.to);
    ASSERT_NE(edited, Scratch::kRun) << "the edit changes nothing";
    write_file(scratch / "run.toml", edited);
  }
  write_file(scratch / "empty.txt", "");
  write_file(scratch / "orphan.toml", "extends = [\"gone.toml\"]\n");
  write_file(scratch / "one.toml", "extends = [\"two.toml\"]\n");
  write_file(scratch / "two.toml", "extends = [\"one.toml\"]\n");
  write_file(scratch / "odd.toml", "[run]\nsteps = = 3\n");
  write_file(scratch / "odd.bin", std::string(1999, 'x'));
  const std::string header = integers({20240520, 1, 256});
  write_file(scratch / "cut.bin", header + std::string(1000, '\0'));
  write_file(scratch / "short.bin", header + std::string(1024 - 12 + 100, '\0'));
  write_file(scratch / "magic.bin", integers({67305985}) + std::string(2044, '\0'));
  write_file(scratch / "model.bin", integers({20240326}) + std::string(2044, '\0'));
  write_file(scratch / "images.idx", idx(3, 4, std::string(24, 'x')));
  write_file(scratch / "labels.idx", idx(1, 4, {0, 1, 9, 2}));
  write_file(scratch / "three.idx", idx(1, 3, {0, 1, 2}));
  write_file(scratch / "cut.idx", idx(3, 4, std::string(23, 'x')));
  write_file(scratch / "fortran.npy",
             npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }") + std::string(24, '\0'));
  write_file(scratch / "complex.npy",
             npy("{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }") + std::string(24, '\0'));
  const auto before = tree(scratch.folder());

  const Ended ended = scratch.run(refusal.arguments);
  EXPECT_EQ(scratch.plain(ended.err), std::string("tenon: ") + refusal.message + "\n");
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.status, refusal.status);
  EXPECT_EQ(changes(scratch.folder(), before), std::vector<std::string>());
}

const Refusal kConfiguration[] = {
    {"unknown_key", "lr = 1e-2", "lrr = 1e-2", kTrain,
     "run.toml:24:1: optimizer.adamw has no option 'lrr'; did you mean 'lr'? (see: tenon inspect "
     "optimizer.adamw)"},
    {"unknown_key_of_the_core", "log_every = 1", "log_evry = 1", kTrain,
     "run.toml:4:1: [run] has no option 'log_evry'; did you mean 'log_every'? (known: name, seed, seed_init, "
     "seed_order, seed_rounding, steps, max_samples, max_tokens, max_seconds, max_bytes, eval_every, "
     "eval_batches, evaluate_first, evaluate_on_stop, log_every, accumulate, clip, on_nan, deadline, "
     "witness_every, witness_layers)"},
    {"unknown_table", "[model]", "[modle]", kTrain,
     "run.toml:16:2: a run has no table 'modle'; did you mean 'model'? (known: run, init, device, parallel, "
     "transport, "
     "data, evaluate, model, precision, optimizer, schedule, sync, recovery, observe, power, tables, "
     "emulate, fault, "
     "plugins)\n"
     "run.toml: a run needs [model] with a 'type': the name of a component of kind model (see: tenon "
     "inspect)"},
    {"wrong_type", "batch = 2", "batch = \"2\"", kTrain,
     "run.toml:14:9: option 'batch' of dataset.text: expected a whole number, found the string \"2\""},
    {"out_of_range", "heads = 2", "heads = 0", kTrain,
     "run.toml:20:9: option 'heads' of model.gpt_neo is 0; expected a whole number from 1 to 2147483647"},
    {"wrong_choice", "log_every = 1", "on_nan = \"contine\"", kTrain,
     "run.toml:4:10: option 'on_nan' of [run] is \"contine\"; expected one of 'stop', 'continue'; did you "
     "mean "
     "'continue'?"},
    {"all_problems_at_once", "width = 16\nheads = 2", "widht = 16\nheads = 2.5", kTrain,
     "run.toml:19:1: model.gpt_neo has no option 'widht'; did you mean 'width'? (see: tenon inspect "
     "model.gpt_neo)\n"
     "run.toml:16:1: model.gpt_neo needs option 'width': a whole number from 1 to 2147483647, width of the "
     "residual "
     "stream\n"
     "run.toml:20:9: option 'heads' of model.gpt_neo: expected a whole number, found the real number 2.5"},
    {"filler_without_a_block", nullptr, "", with({"--set", "power.actuator={type='filler', block_s=0.0}"}),
     "--set power.actuator={type='filler', block_s=0.0}: plugin tenon.power_filler (power.filler): 'block_s' "
     "is 0 s; "
     "filling a run needs from 1e-05 to 0.01 s"},
    {"workers_of_a_mesh", nullptr, "", with({"--set", "parallel.grid=[2]", "--set", "parallel.workers=2"}),
     "--set parallel.workers=2: parallel.workers = 2: ranks of a mesh send each other values in every "
     "forward, and "
     "workers beside each other would send them in different orders; set it to 1, or leave out "
     "parallel.grid\n"
     "run.toml: 2 ranks need [transport] with a 'type' (see: tenon inspect)"},
    {"zero_ranks", nullptr, "", with({"--set", "parallel.ranks=0"}),
     "--set parallel.ranks=0: option 'ranks' of [parallel] is 0; expected a whole number from 1 to 1048576"},
    {"ranks_without_transport", nullptr, "", with({"--set", "parallel.ranks=2"}),
     "run.toml: 2 ranks need [transport] with a 'type' (see: tenon inspect)\n"
     "run.toml: 2 replicas need [sync] with a 'type' (see: tenon inspect)"},
    {"missing_configuration",
     nullptr,
     "",
     {"train", "gone.toml"},
     "cannot read 'gone.toml': No such file or directory; nor is there '{source}/gone.toml'"},
    {"missing_base",
     nullptr,
     "",
     {"train", "orphan.toml"},
     "orphan.toml:1:12: cannot read 'gone.toml' (extends \"gone.toml\"): No such file or directory; nor is "
     "there '{source}/gone.toml'"},
    {"cyclic_bases",
     nullptr,
     "",
     {"train", "one.toml"},
     "two.toml:1:12: extends makes a cycle: one.toml -> two.toml -> one.toml\n"
     "  two.toml is extended at one.toml:1:12"},
    {"not_toml",
     nullptr,
     "",
     {"train", "odd.toml"},
     "odd.toml:2:9: Error while parsing value: could not determine value type"},
    {"override_of_an_unknown_option", "[optimizer]",
     "[[model.override]]\nmatch = \"*.q_proj\"\nfeaturs = 3\n[optimizer]", kTrain,
     "run.toml:24:11: model node 'transformer.h.0.attn.attention.q_proj': layer.linear has no option "
     "'featurs'; "
     "did you mean 'features'? (see: tenon inspect layer.linear)"},
    {"option_found_wrong_when_made", "heads = 2", "heads = 3",
     with({"--set", "parallel.ranks=2", "--set", "sync.type=ddp", "--set", "transport.type=thread"}),
     "run.toml:19:9: plugin tenon.gpt_neo (model.gpt_neo): model gpt_neo: width 16 is not a multiple of 3 "
     "heads"},
    {"option_of_recovery", "every = 2", "every = 2\nevery_seconds = 3", kTrain,
     "run.toml:28:9: plugin tenon.recovery_basic (recovery.full): recovery: found 'every' and "
     "'every_seconds', which "
     "exclude each other; keep one of every (slots), every_seconds and mtbf_seconds"},
    {"set_without_value", nullptr, "", with({"--set", "run.steps"}),
     "--set run.steps: expected KEY=VALUE, for example --set optimizer.lr=1e-3"},
    {"set_of_wrong_type", nullptr, "", with({"--set", "run.steps=1.5"}),
     "--set run.steps=1.5: option 'steps' of [run]: expected a whole number, found the real number 1.5"},
    {"set_of_unknown_table", nullptr, "", with({"--set", "modle.width=3"}),
     "--set modle.width=3: a run has no table 'modle'; did you mean 'model'? (known: run, init, device, "
     "parallel, "
     "transport, data, evaluate, model, precision, optimizer, schedule, sync, recovery, observe, power, "
     "tables, emulate, "
     "fault, "
     "plugins)"},
};

const Refusal kData[] = {
    {"missing", "text.txt", "gone.txt", kTrain,
     "run.toml:12:8: option 'path' of dataset.text: cannot find 'gone.txt'; tried\n"
     "  {dir}/gone.txt\n"
     "  {source}/gone.txt"},
    {"empty", "text.txt", "empty.txt", kTrain,
     "run.toml:10:1: plugin tenon.text (dataset.text): data file '{dir}/empty.txt': expected a file with "
     "tokens, "
     "found an empty file"},
    {"folder", "text.txt", ".", kTrain,
     "run.toml:10:1: plugin tenon.text (dataset.text): data file '{dir}/': expected a file with tokens, "
     "found a "
     "folder"},
    {"truncated_tokens", "text.txt", "odd.bin", kTrain,
     "run.toml:10:1: plugin tenon.text (dataset.text): data file '{dir}/odd.bin': expected an even number of "
     "bytes "
     "(uint16 tokens, format nanogpt), found "
     "1999 bytes; "
     "the file is cut off, or it is text and needs format = \"bytes\""},
    {"truncated_header", "text.txt", "cut.bin", kTrain,
     "run.toml:10:1: plugin tenon.text (dataset.text): data file '{dir}/cut.bin': expected an llm.c header "
     "of 1024 "
     "bytes, found a file of 1012 bytes"},
    {"truncated_behind_header", "text.txt", "short.bin", kTrain,
     "run.toml:10:1: plugin tenon.text (dataset.text): data file '{dir}/short.bin': 256 tokens of 2 bytes "
     "after a "
     "header of 1024: expected 1536 bytes, found "
     "1124; "
     "the file is cut off"},
    {"wrong_magic", "path = \"text.txt\"", "path = \"magic.bin\"\nformat = \"llmc\"", kTrain,
     "run.toml:10:1: plugin tenon.text (dataset.text): data file '{dir}/magic.bin': expected the llm.c magic "
     "number "
     "20240520 (uint16 tokens) or 20240801 "
     "(uint32 "
     "tokens), found 67305985"},
    {"model_for_data", "text.txt", "model.bin", kTrain,
     "run.toml:10:1: plugin tenon.text (dataset.text): data file '{dir}/model.bin': expected the llm.c magic "
     "number "
     "20240520 (uint16 tokens) or 20240801 "
     "(uint32 "
     "tokens), found 20240326; this is an llm.c model checkpoint, not data"},
    {"batch_larger_than_the_data", "batch = 2", "batch = 1000", kTrain,
     "run.toml:14:9: plugin tenon.text (dataset.text): data file '{dir}/text.txt' has 3000 tokens, 2700 of "
     "them to "
     "train on and 300 to validate on: batch = "
     "1000 is "
     "larger than the data, which holds 168 windows of context = 16; lower batch or context, or take a "
     "longer file"},
    {"context_larger_than_the_data", "context = 16", "context = 2700", kTrain,
     "run.toml:13:11: plugin tenon.text (dataset.text): data file '{dir}/text.txt' has 3000 tokens, 2700 of "
     "them to "
     "train on and 300 to validate on: a window "
     "of "
     "context = 2700 needs 2701 tokens to train on; lower context or val_fraction, or take a longer file"},
    {"images_and_labels_exchanged", kText,
     "type = \"mnist\"\nimages = \"labels.idx\"\nlabels = \"images.idx\"", kTrain,
     "run.toml:10:1: plugin tenon.mnist (dataset.mnist): data file '{dir}/labels.idx': expected an IDX file "
     "of "
     "images, magic "
     "number 0x00000803; found 0x00000801 (a file of labels)"},
    {"images_cut_off", kText, "type = \"mnist\"\nimages = \"cut.idx\"\nlabels = \"labels.idx\"", kTrain,
     "run.toml:10:1: plugin tenon.mnist (dataset.mnist): data file '{dir}/cut.idx': the header says 4 x 2 x "
     "3 "
     "images, 24 "
     "bytes; found 23 bytes after it; the file is cut off"},
    {"more_images_than_labels", kText, "type = \"mnist\"\nimages = \"images.idx\"\nlabels = \"three.idx\"",
     kTrain,
     "run.toml:10:1: plugin tenon.mnist (dataset.mnist): data files '{dir}/images.idx' and "
     "'{dir}/three.idx': "
     "expected one "
     "label per image, found 4 images and 3 labels"},
    {"label_out_of_range", kText, kMnist, with({"--set", "data.classes=9"}),
     "run.toml:10:1: plugin tenon.mnist (dataset.mnist): data file '{dir}/labels.idx': label 9 at position 2 "
     "lies "
     "outside of "
     "the 9 classes; set classes to their number"},
    {"fortran_order", kText, "type = \"npy\"\ninputs = [\"x=fortran.npy\"]", kTrain,
     "run.toml:10:1: plugin tenon.npy (dataset.npy): data file '{dir}/fortran.npy': expected C order (rows "
     "one "
     "after the "
     "other), found Fortran order; write the array again with numpy.save(path, "
     "numpy.ascontiguousarray(array))"},
    {"complex_elements", kText, "type = \"npy\"\ninputs = [\"x=complex.npy\"]", kTrain,
     "run.toml:10:1: plugin tenon.npy (dataset.npy): data file '{dir}/complex.npy': expected elements of "
     "type <f4, "
     "<f8, <i4, "
     "<i8, |u1 or |b1, found '<c8'; convert the array, e.g. with array.astype('float32')"},
    {"array_that_is_not_there", kText, "type = \"npy\"\ninputs = [\"x=gone.npy\"]", kTrain,
     "run.toml:12:11: option 'inputs' of dataset.npy: cannot find 'gone.npy'; tried\n"
     "  {dir}/gone.npy\n"
     "  {source}/gone.npy"},
    {"weights_that_are_not_one", kText,
     "type = \"mixture\"\nsources = [\"a=text.txt\"]\nweights = [\"0.99\"]", kTrain,
     "run.toml:10:1: plugin tenon.text (dataset.mixture): data.mixture: weights of phase 1: the weights sum "
     "to "
     "99/100; expected "
     "exactly 1 (weights that were rounded can be given as fractions of their sum, e.g. \"457/1001\")"},
};

const Refusal kPlugins[] = {
    {"misspelt", "adamw", "adamm", kTrain,
     "run.toml:23:8: there is no optimizer.adamm; did you mean 'adamw'? Offered: {ids}. Places searched:\n"
     "  [plugins] paths: not set\n"
     "  TENON_PLUGIN_PATH: not set\n"
     "  install folder: {build}/lib/tenon/plugins: {n} plugin files"},
    {"absent", "adamw", "lion", with({"--set", "plugins.paths=[\"/nowhere/plugins\"]"}),
     "--set plugins.paths=[\"/nowhere/plugins\"]: [plugins] paths: cannot find '/nowhere/plugins'; tried\n"
     "  /nowhere/plugins"},
};

const Refusal kUsage[] = {
    {"unknown_command",
     nullptr,
     "",
     {"trian", "run.toml"},
     "there is no command 'trian'; did you mean 'train'? (see: tenon --help)"},
    {"unknown_option",
     nullptr,
     "",
     {"train", "run.toml", "--resme"},
     "tenon train: there is no option '--resme'; did you mean '--resume'? (see: tenon train --help)"},
    {"no_guessing",
     nullptr,
     "",
     {"train", "run.toml", "--resum"},
     "tenon train: there is no option '--resum'; did you mean '--resume'? (see: tenon train --help)"},
    {"no_configuration",
     nullptr,
     "",
     {"train"},
     "tenon train: which CONFIG? usage: tenon train CONFIG [options]"},
    {"too_many_words",
     nullptr,
     "",
     {"train", "run.toml", "two"},
     "tenon train: too many words; usage: tenon train CONFIG [options]"},
    {"option_without_value",
     nullptr,
     "",
     {"train", "run.toml", "--run-dir"},
     "tenon train: the required argument for option '--run-dir' is missing (see: tenon train --help)"},
    {"resume_of_nothing", nullptr, "", with({"--resume", "--run-dir", "nowhere"}),
     "no run at 'nowhere': the folder does not exist. There are no folders in '.'."},
    {"check_has_the_same_eyes",
     "lr = 1e-2",
     "lrr = 1e-2",
     {"check", "run.toml"},
     "run.toml:24:1: optimizer.adamw has no option 'lrr'; did you mean 'lr'? (see: tenon inspect "
     "optimizer.adamw)"},
};

std::string name_of(const ::testing::TestParamInfo<Refusal>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Configuration, BadInput, ::testing::ValuesIn(kConfiguration), name_of);
INSTANTIATE_TEST_SUITE_P(Data, BadInput, ::testing::ValuesIn(kData), name_of);
INSTANTIATE_TEST_SUITE_P(Plugins, BadInput, ::testing::ValuesIn(kPlugins), name_of);
INSTANTIATE_TEST_SUITE_P(Usage, BadInput, ::testing::ValuesIn(kUsage), name_of);

}  // namespace
}  // namespace tenon::integration::bad_input_test
