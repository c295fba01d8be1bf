// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Authorization} from "../../src/gateway/Authorizations.sol";
import {BurnIntent, TransferSpec} from "../../src/gateway/BurnIntent.sol";
import {vm} from "./Vm.sol";

/// A key and its address.
struct Account {
    address addr;
    uint256 key;
}

/// Where a signature is meant to count.
struct Domain {
    string name;
    string version;
    uint256 chainId;
    address verifyingContract;
}

/// @title Signer
///
/// @notice Signs what a wallet would sign. Every type string is spelled out here again and nothing is asked of the
///         contracts under test, so that a mistake in theirs cannot agree with itself.
library Signer {
    string internal constant AUTHORIZATION_FIELDS =
        "(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)";
    string internal constant TRANSFER_SPEC =
        "TransferSpec(uint32 version,uint32 sourceDomain,uint32 destinationDomain,bytes32 sourceContract,bytes32 destinationContract,bytes32 sourceToken,bytes32 destinationToken,bytes32 sourceDepositor,bytes32 destinationRecipient,bytes32 sourceSigner,bytes32 destinationCaller,uint256 value,bytes32 salt,bytes hookData)";

    function account(string memory name) internal returns (Account memory made) {
        made.key = uint256(keccak256(bytes(name)));
        made.addr = vm.addr(made.key);
        vm.label(made.addr, name);
    }

    function separator(Domain memory domain) internal pure returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256(bytes(domain.name)),
                keccak256(bytes(domain.version)),
                domain.chainId,
                domain.verifyingContract
            )
        );
    }

    /// Fills in the signature of an authorization by `key`, whoever it names as payer.
    function signed(Authorization memory row, uint256 key, Domain memory domain)
        internal
        pure
        returns (Authorization memory)
    {
        (row.v, row.r, row.s) = vm.sign(key, digest("TransferWithAuthorization", row, domain));
        return row;
    }

    /// The signature of a deposit into the gateway, which the token will check.
    function receiveSignature(Authorization memory row, uint256 key, Domain memory domain)
        internal
        pure
        returns (bytes memory)
    {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest("ReceiveWithAuthorization", row, domain));
        return abi.encodePacked(r, s, v);
    }

    function digest(string memory typeName, Authorization memory row, Domain memory domain)
        internal
        pure
        returns (bytes32)
    {
        bytes32 typeHash = keccak256(abi.encodePacked(typeName, AUTHORIZATION_FIELDS));
        bytes32 structHash = keccak256(
            abi.encode(typeHash, row.from, row.to, row.value, row.validAfter, row.validBefore, row.nonce)
        );
        return keccak256(abi.encodePacked(hex"1901", separator(domain), structHash));
    }

    function transferSpecHash(TransferSpec memory spec) internal pure returns (bytes32) {
        bytes memory first = abi.encode(
            keccak256(bytes(TRANSFER_SPEC)),
            spec.version,
            spec.sourceDomain,
            spec.destinationDomain,
            spec.sourceContract,
            spec.destinationContract,
            spec.sourceToken,
            spec.destinationToken
        );
        bytes memory second = abi.encode(
            spec.sourceDepositor,
            spec.destinationRecipient,
            spec.sourceSigner,
            spec.destinationCaller,
            spec.value,
            spec.salt,
            keccak256(spec.hookData)
        );
        return keccak256(bytes.concat(first, second));
    }

    function intentSignature(BurnIntent memory intent, uint256 key) internal pure returns (bytes memory) {
        bytes32 typeHash = keccak256(
            abi.encodePacked("BurnIntent(uint256 maxBlockHeight,uint256 maxFee,TransferSpec spec)", TRANSFER_SPEC)
        );
        bytes32 structHash =
            keccak256(abi.encode(typeHash, intent.maxBlockHeight, intent.maxFee, transferSpecHash(intent.spec)));
        bytes32 domainSeparator = keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version)"), keccak256("GatewayWallet"), keccak256("1")
            )
        );
        (uint8 v, bytes32 r, bytes32 s) =
            vm.sign(key, keccak256(abi.encodePacked(hex"1901", domainSeparator, structHash)));
        return abi.encodePacked(r, s, v);
    }
}
