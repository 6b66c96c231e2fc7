#!/usr/bin/env python3
"""Writes a copy of a GGUF file whose quantized weights are f16, which are slower and say almost the same.

Usage: widen_gguf.py IN.gguf OUT.gguf     (needs the Python package gguf 0.19)

With a small model at hand, the copy is a target whose draft model is the quantized file.
"""
import argparse

import gguf
import numpy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('source')
    parser.add_argument('target')
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.source)
    writer = gguf.GGUFWriter(args.target, reader.get_field('general.architecture').contents())
    for field in reader.fields.values():
        if field.name == 'general.architecture' or field.name.startswith('GGUF.'):
            continue
        value = field.contents()
        if field.name == 'general.file_type':
            value = int(gguf.LlamaFileType.MOSTLY_F16)
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        data = gguf.dequantize(tensor.data, tensor.tensor_type)
        wide = tensor.tensor_type == gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, data if wide else data.astype(numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == '__main__':
    main()
