// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

/// A transfer out of a gateway: Circle's structure, field by field, so that one signer serves both gateways.
/// Addresses are left-padded to 32 bytes.
struct TransferSpec {
    uint32 version;
    uint32 sourceDomain;
    uint32 destinationDomain;
    bytes32 sourceContract;
    bytes32 destinationContract;
    bytes32 sourceToken;
    bytes32 destinationToken;
    bytes32 sourceDepositor;
    bytes32 destinationRecipient;
    bytes32 sourceSigner;
    bytes32 destinationCaller;
    uint256 value;
    bytes32 salt;
    bytes hookData;
}

/// What a depositor signs to withdraw at once.
struct BurnIntent {
    /// The last block in which it may be used.
    uint256 maxBlockHeight;
    /// The most the operator may keep. This gateway keeps nothing.
    uint256 maxFee;
    TransferSpec spec;
}

/// @title BurnIntents
///
/// @notice The EIP-712 hash of a burn intent. Circle's domain has neither chain nor contract; both are inside the spec
///         and must be checked there.
library BurnIntents {
    bytes32 internal constant TRANSFER_SPEC_TYPEHASH = keccak256(
        "TransferSpec(uint32 version,uint32 sourceDomain,uint32 destinationDomain,bytes32 sourceContract,bytes32 destinationContract,bytes32 sourceToken,bytes32 destinationToken,bytes32 sourceDepositor,bytes32 destinationRecipient,bytes32 sourceSigner,bytes32 destinationCaller,uint256 value,bytes32 salt,bytes hookData)"
    );

    bytes32 internal constant BURN_INTENT_TYPEHASH = keccak256(
        "BurnIntent(uint256 maxBlockHeight,uint256 maxFee,TransferSpec spec)TransferSpec(uint32 version,uint32 sourceDomain,uint32 destinationDomain,bytes32 sourceContract,bytes32 destinationContract,bytes32 sourceToken,bytes32 destinationToken,bytes32 sourceDepositor,bytes32 destinationRecipient,bytes32 sourceSigner,bytes32 destinationCaller,uint256 value,bytes32 salt,bytes hookData)"
    );

    bytes32 internal constant DOMAIN_SEPARATOR = keccak256(
        abi.encode(keccak256("EIP712Domain(string name,string version)"), keccak256("GatewayWallet"), keccak256("1"))
    );

    /// Names one transfer for good: two transfers that agree in everything else differ by their salt.
    function hash(TransferSpec calldata spec) internal pure returns (bytes32) {
        // Two halves, because one `abi.encode` of fifteen words needs more stack than there is.
        return keccak256(
            bytes.concat(
                abi.encode(
                    TRANSFER_SPEC_TYPEHASH,
                    spec.version,
                    spec.sourceDomain,
                    spec.destinationDomain,
                    spec.sourceContract,
                    spec.destinationContract,
                    spec.sourceToken,
                    spec.destinationToken
                ),
                abi.encode(
                    spec.sourceDepositor,
                    spec.destinationRecipient,
                    spec.sourceSigner,
                    spec.destinationCaller,
                    spec.value,
                    spec.salt,
                    keccak256(spec.hookData)
                )
            )
        );
    }

    /// What the depositor's key signed.
    function digest(BurnIntent calldata intent, bytes32 transferSpecHash) internal pure returns (bytes32) {
        return MessageHashUtils.toTypedDataHash(
            DOMAIN_SEPARATOR,
            keccak256(abi.encode(BURN_INTENT_TYPEHASH, intent.maxBlockHeight, intent.maxFee, transferSpecHash))
        );
    }
}
