// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

/// One signed payment: the six fields of ERC-3009 and the signature.
struct Authorization {
    address from;
    address to;
    uint256 value;
    uint256 validAfter;
    uint256 validBefore;
    bytes32 nonce;
    uint8 v;
    bytes32 r;
    bytes32 s;
}

/// Which of 256 nonces have paid, a bit for each.
struct UsedNonces {
    uint256 bits;
}

/// Why a row of a batch was skipped. The names are Circle's error reasons where Circle has one. Numbers are permanent:
/// new reasons go to the end.
enum SkipReason {
    None,
    ZeroValue,
    SelfTransfer,
    InvalidPayee,
    NotYetValid,
    Expired,
    NonceAlreadyUsed,
    InvalidSignature,
    InsufficientBalance
}

/// @title Authorizations
///
/// @notice What makes a signed payment good: the domain it is signed under, its window, its nonce, its signature.
///
/// @dev The domain is Circle's `GatewayWalletBatched` version 1 with this chain and this contract, so a signature for
///      another chain, another gateway or the token itself is not a signature here.
abstract contract Authorizations is EIP712 {
    bytes32 internal constant TRANSFER_WITH_AUTHORIZATION_TYPEHASH = keccak256(
        "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
    );

    /// Half of the order of secp256k1. Above it every signature has a twin, and only one of the two may count.
    uint256 private constant SIGNATURE_S_MAX = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0;

    /// One bit per nonce. A nonce is a 192-bit key and a 64-bit sequence; all but its last eight bits name the word, so
    /// 256 consecutive payments of an account share one storage slot. A random nonce works too, for 20,000 gas more.
    mapping(address authorizer => mapping(uint256 word => UsedNonces used)) private _usedNonces;

    /// The nonce has paid this value. One event tells what ERC-3009's `AuthorizationUsed` and a change of the payer's
    /// balance would tell together, for 1,600 gas less.
    event PaymentSettled(address indexed payer, bytes32 nonce, uint256 value);

    constructor() EIP712("GatewayWalletBatched", "1") {}

    /// Whether this nonce has paid. Ask this before anything else when the fate of a batch is unknown.
    function authorizationState(address authorizer, bytes32 nonce) external view returns (bool used) {
        return _usedNonces[authorizer][_word(nonce)].bits & _bit(nonce) != 0;
    }

    /// Uses the nonce up when the row is good.
    ///
    /// @dev Never reverts, whatever the row contains. The signature comes before the funds, so that a forged row says
    ///      nothing about the account it names.
    ///
    /// @param funds       What the payer has left at this row
    /// @param separator   `_domainSeparatorV4()`, which is the same for all rows of a batch
    /// @return reason     Why the row must not settle, `None` when it may
    /// @return required   With `found`, the two numbers that disagree
    function _use(Authorization calldata row, uint256 funds, bytes32 separator)
        internal
        returns (SkipReason reason, uint256 required, uint256 found)
    {
        (address from, address to, uint256 value, bytes32 nonce) = (row.from, row.to, row.value, row.nonce);

        // 1. The row must make sense.
        if (value == 0) return (SkipReason.ZeroValue, 1, 0);
        if (from == to) return (SkipReason.SelfTransfer, uint160(from), uint160(to));
        if (to == address(0) || to == address(this)) return (SkipReason.InvalidPayee, 0, uint160(to));

        // 2. It must be within its window, and new.
        if (block.timestamp <= row.validAfter) return (SkipReason.NotYetValid, row.validAfter, block.timestamp);
        if (block.timestamp >= row.validBefore) return (SkipReason.Expired, row.validBefore, block.timestamp);
        UsedNonces storage used = _usedNonces[from][_word(nonce)];
        uint256 bits = used.bits;
        if (bits & _bit(nonce) != 0) return (SkipReason.NonceAlreadyUsed, 0, 1);

        // 3. The payer must have signed it.
        address signer = _signer(row, separator);
        if (signer == address(0) || signer != from) {
            return (SkipReason.InvalidSignature, uint160(from), uint160(signer));
        }

        // 4. The payer must be able to pay.
        if (value > funds) return (SkipReason.InsufficientBalance, value, funds);

        // 5. It pays once.
        used.bits = bits | _bit(nonce);
        emit PaymentSettled(from, nonce, value);
    }

    /// Who signed the row, or zero when the signature is malformed (high `s`, `v` other than 27 or 28).
    function _signer(Authorization calldata row, bytes32 separator) private pure returns (address signer) {
        bytes32 typeHash = TRANSFER_WITH_AUTHORIZATION_TYPEHASH;
        bytes32 structHash;
        // The six signed fields are the first six words of the row, in the order in which they are signed. The caller
        // has read the two addresses, which reverts unless their upper bits are zero.
        assembly ("memory-safe") {
            let words := mload(0x40)
            mstore(words, typeHash)
            calldatacopy(add(words, 0x20), row, 0xc0)
            structHash := keccak256(words, 0xe0)
        }
        if (uint256(row.s) > SIGNATURE_S_MAX) return address(0);
        return ecrecover(MessageHashUtils.toTypedDataHash(separator, structHash), row.v, row.r, row.s);
    }

    function _word(bytes32 nonce) private pure returns (uint256) {
        return uint256(nonce) >> 8;
    }

    function _bit(bytes32 nonce) private pure returns (uint256) {
        return 1 << (uint256(nonce) & 0xff);
    }
}
