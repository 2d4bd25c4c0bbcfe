"""Checks ONNX models with onnx.checker and onnx.shape_inference. The results have the metadata and, as shape, what was inferred of
each output: its number of dimensions."""

import json
import sys

import onnx
from onnx import checker, shape_inference


def check(path):
    model = onnx.load(path)
    checker.check_model(model, full_check=True)
    inferred = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    known = {v.name: v.type.tensor_type for v in [*inferred.graph.value_info, *inferred.graph.output]}
    for node in inferred.graph.node:
        for name in node.output:
            if name and (name not in known or not known[name].HasField("shape")):
                raise ValueError(f"{path}: the shape of {name}, of {node.op_type}, is not inferred")
    outputs = {o.name: {"shape": [len(known[o.name].shape.dim)], "data": []} for o in inferred.graph.output}
    return {"meta": {p.key: p.value for p in model.metadata_props}, "outputs": outputs}


print(json.dumps([check(r["path"]) for r in json.load(sys.stdin)]))
