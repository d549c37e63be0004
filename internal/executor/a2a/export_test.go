package a2a

// RPCAddress is rpcAddress.
var RPCAddress = rpcAddress
