// Tokenizes with llama.cpp itself, for make_tokenizer_goldens.py. Links only what its vocabulary
// needs, so it builds in a minute. L is the folder vendor/llama.cpp of PyPI's source package
// llama-cpp-python 0.3.36.
//
// clang-format off
//   mkdir llama_ref && cd llama_ref
//   sed 's/@[A-Z_]*@/x/' $L/ggml/src/ggml-version.h.in > ggml-version.h
//   sed 's/@[A-Z_]*@/x/' $L/src/llama-version.h.in > llama-version.h
//   F="-O2 -DNDEBUG -w -ffunction-sections"
//   F="$F -I. -I$L/include -I$L/src -I$L/ggml/include -I$L/ggml/src"
//   gcc -std=gnu11 -D_GNU_SOURCE $F -c $L/ggml/src/ggml.c
//   g++ -std=c++17 $F -c \
//     $L/src/{llama-vocab,unicode,unicode-data,llama-model-loader,llama-arch}.cpp \
//     $L/src/{llama-impl,llama-mmap,llama-hparams}.cpp $L/ggml/src/{gguf,ggml-threading}.cpp
//   g++ -std=c++17 $F .../llama_vocab_ids.cc *.o -o llama_vocab_ids -Wl,--gc-sections \
//     -Wl,--unresolved-symbols=ignore-all -lpthread -ldl -lm
//
//   llama_vocab_ids MODEL.gguf ADD_SPECIAL PARSE_SPECIAL < records > ids
// clang-format on
//
// The format of records is that of src/tokenizer/load/encode_records.cc.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "llama-model-loader.h"
#include "llama-vocab.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  gguf_context* file = gguf_init_from_file(argv[1], {/*no_alloc=*/true, /*ctx=*/nullptr});
  if (file == nullptr) return 1;
  const int key = gguf_find_key(file, "general.architecture");
  const llm_arch arch = llm_arch_from_string(key < 0 ? "llama" : gguf_get_val_str(file, key));
  // The vocabulary reads only the loader's metadata; the loader's constructor needs the weights.
  auto* loader = static_cast<llama_model_loader*>(std::calloc(1, sizeof(llama_model_loader)));
  new (&loader->kv_overrides) std::unordered_map<std::string, llama_model_kv_override>();
  new (&loader->llm_kv) LLM_KV(arch);
  loader->metadata = file;
  llama_vocab vocab;
  vocab.load(*loader, LLM_KV(arch));

  uint32_t size = 0;
  while (std::fread(&size, sizeof size, 1, stdin) == 1) {
    std::string text(size, '\0');
    if (std::fread(&text[0], 1, size, stdin) != size) return 1;
    const std::vector<llama_token> ids =
        vocab.tokenize(text, std::atoi(argv[2]) != 0, std::atoi(argv[3]) != 0);
    const uint32_t count = ids.size();
    std::fwrite(&count, sizeof count, 1, stdout);
    std::fwrite(ids.data(), sizeof(llama_token), count, stdout);
  }
}
