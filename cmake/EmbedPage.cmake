# cmake -DOUTPUT=<file.cc> -DASSETS=<path=file;...> -DNOTICES=<file;...> -DLICENSE=<file>
#       -DGZIP=<program> -P EmbedPage.cmake
# Writes the definition of PageAssets() (src/server/page/page_assets.h): every asset both uncompressed
# and compressed, except fonts, which are compressed already. The licences of outside libraries
# become one more asset, /page/notices.txt.
get_filename_component(folder ${OUTPUT} DIRECTORY)
file(MAKE_DIRECTORY ${folder})

if(ASSETS)
  set(text "The page contains the following works of others.\n")
  foreach(notice ${NOTICES})
    file(READ ${notice} content)
    string(APPEND text "\n================================================================\n"
                       "${content}")
  endforeach()
  file(READ ${LICENSE} content)
  string(APPEND text "\n================================================================\n"
                     "The Apache License 2.0, which some of the above name:\n\n${content}")
  file(WRITE ${folder}/notices.txt "${text}")
  list(APPEND ASSETS /page/notices.txt=${folder}/notices.txt)
endif()

set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")
set(type_txt "text/plain; charset=utf-8")
set(type_woff2 "font/woff2")

# read_as_literal(VARIABLE FILE): sets VARIABLE to the file's bytes as a C++ string literal.
function(read_as_literal variable file)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  set(${variable} "\"${bytes}\"" PARENT_SCOPE)
endfunction()

set(source "#include \"server/page/page_assets.h\"\n\nnamespace tokamak {\nnamespace {\n\n")
set(table "")
set(index 0)
foreach(asset ${ASSETS})
  string(REGEX MATCH "^([^=]*)=(.*)$" matched "${asset}")
  set(path ${CMAKE_MATCH_1})
  set(file ${CMAKE_MATCH_2})
  string(REGEX MATCH "[a-z0-9]+$" extension "${path}")
  if(NOT extension)
    set(extension html)
  endif()
  file(SHA256 ${file} digest)
  string(SUBSTRING ${digest} 0 16 tag)
  read_as_literal(plain ${file})
  set(compressed "\"\"")
  if(NOT extension STREQUAL "woff2")
    execute_process(COMMAND ${GZIP} -9 -n -c ${file} OUTPUT_FILE ${folder}/compressed.gz
                    RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "${GZIP} could not compress ${file}")
    endif()
    read_as_literal(compressed ${folder}/compressed.gz)
  endif()
  string(APPEND source "constexpr char kPlain${index}[] = ${plain};\n"
                       "constexpr char kGzip${index}[] = ${compressed};\n")
  string(APPEND table "    {\"${path}\", \"${type_${extension}}\", \"${tag}\", View(kPlain${index}), "
                      "View(kGzip${index})},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(REMOVE ${folder}/compressed.gz)

if(ASSETS)
  string(APPEND source "
template <size_t size>
constexpr std::string_view View(const char (&literal)[size]) {
  return {literal, size - 1};
}

constexpr PageAsset kAssets[] = {
${table}};

}  // namespace

std::span<const PageAsset> PageAssets() { return kAssets; }
")
else()
  string(APPEND source "}  // namespace\n\nstd::span<const PageAsset> PageAssets() { return {}; }\n")
endif()
string(APPEND source "\n}  // namespace tokamak\n")
file(WRITE ${OUTPUT} "${source}")
